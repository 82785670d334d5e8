/* SPDX-License-Identifier: MIT */
/* See os_support.h. */
#define _DEFAULT_SOURCE
#include "os_support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static kvlazy_mem table;

static uint64_t hand_clock(void *ctx)
{
    return ((struct rig *)ctx)->fake.now;
}

void use_host(struct rig *r, uint32_t kv_size)
{
    static const size_t rows[4][2] = {{2048, 2048}, {1024, 36}, {34, 1000}, {512, 512}};

    table = *kvlazy_mem_host();
    table.ctx = r;
    table.now_ms = hand_clock;
    r->params.mem = &table;
    r->params.kv_size = kv_size;
    r->params.n_stream = r->params.n_seq_max = 2;
    rig_rows(r, 4, rows);
}

void open_host(struct rig *r, uint32_t kv_size)
{
    use_host(r, kv_size);
    rig_open(r);
}

uint64_t resident(struct rig *r)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t told = 1, n = 0;

    for (int t = 0; t < r->n_tensor; t++) {
        size_t n_page = (r->n_stream * r->tensor[t].stream_stride + page - 1) / page;
        unsigned char *vec = malloc(n_page);

        assert_non_null(vec);
        assert_int_equal(mincore(r->tensor[t].data, n_page * page, vec), 0);
        for (size_t i = 0; i < n_page; i++)
            n += (vec[i] & 1) * page;
        free(vec);
    }
    ok(kvlazy_resident(r->cache, &told));
    assert_int_equal(told, n);
    return n;
}

static void read_line(struct mapping *m, const char *line, uintptr_t at)
{
    unsigned long begin, end, kib;
    char name[64] = "";

    if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %63s", &begin, &end, name) >= 2 &&
        strchr(line, '-') < strchr(line, ' ')) {
        *m = (struct mapping){begin, end, 0, 0, strcmp(name, "[anon:kvlazy]") == 0, ""};
    } else if (m->end <= at || m->begin > at) {
        return;
    } else if (sscanf(line, "Rss: %lu", &kib) == 1) {
        m->rss_bytes = (uint64_t)kib << 10;
    } else if (sscanf(line, "AnonHugePages: %lu", &kib) == 1) {
        m->huge_bytes = (uint64_t)kib << 10;
    } else if (strncmp(line, "VmFlags:", 8) == 0) {
        snprintf(m->flags, sizeof m->flags, "%s ", line + 8);
        m->flags[strcspn(m->flags, "\n")] = ' ';
    }
}

struct mapping mapping_of(struct rig *r)
{
    uintptr_t at = (uintptr_t)r->tensor[0].data;
    struct mapping m = {0};
    char line[512];
    FILE *smaps = fopen("/proc/self/smaps", "r");

    if (!smaps) {
        print_message("no /proc/self/smaps here\n");
        skip();
    }
    while (!m.flags[0] && fgets(line, sizeof line, smaps))
        read_line(&m, line, at);
    fclose(smaps);
    if (!m.flags[0]) {
        print_message("no VmFlags in /proc/self/smaps\n");
        skip();
    }
    return m;
}

bool has(const struct mapping *m, const char *flag)
{
    char word[8];

    snprintf(word, sizeof word, " %s ", flag);
    return strstr(m->flags, word) != NULL;
}

static uintptr_t end_of(struct rig *r)
{
    const kvlazy_tensor *last = &r->tensor[r->n_tensor - 1];

    return (uintptr_t)last->data + r->n_stream * last->stream_stride;
}

int map_lines(uintptr_t begin, uintptr_t end)
{
    char line[512];
    unsigned long from, to;
    FILE *maps = fopen("/proc/self/maps", "r");
    int n = 0;

    if (!maps) {
        print_message("no /proc/self/maps here\n");
        skip();
    }
    while (fgets(line, sizeof line, maps))
        n += sscanf(line, "%lx-%lx", &from, &to) == 2 && from < end && to > begin;
    fclose(maps);
    return n;
}

int map_lines_of(struct rig *r)
{
    return map_lines((uintptr_t)r->tensor[0].data, end_of(r));
}

uint64_t proc_status(const char *name)
{
    char line[256];
    unsigned long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");

    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), "%lu", &kib);
    if (status)
        fclose(status);
    return (uint64_t)kib << 10;
}

bool lock_pages(void *at, size_t bytes)
{
    if (syscall(SYS_mlock, at, bytes) == 0)
        return true;
    print_message("mlock: %s\n", strerror(errno));
    return false;
}

void serve(struct rig *r)
{
    assert_int_equal(resident(r), 0);
    ok(turn(r, 1, 0, 2000));
    ok(turn(r, 0, 0, 100));
    ok(turn(r, 0, 100, 100));
    assert_int_equal(resident(r), cover(r));
    assert_int_equal(stats(r).touched_bytes, cover(r));
    ok(kvlazy_seq_rm(r->cache, 0, 10, 150)); /* a hole in every tensor: many ranges at once */
    ok(kvlazy_seq_rm(r->cache, 1, 50, -1));
    ok(kvlazy_trim(r->cache, 0));
    assert_int_equal(resident(r), cover(r));
    assert_int_equal(stats(r).touched_bytes, cover(r));
    assert_int_equal(stats(r).n_os_refusal, 0);
    sound(r);
}

int run_in_child(const struct CMUnitTest *test)
{
    const struct CMUnitTest one[] = {*test};
    int status = -1;

    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        int n_failed = cmocka_run_group_tests_name(test->name, one, NULL, NULL);

        fflush(NULL);
        _exit(n_failed != 0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 1;
    if (WIFSIGNALED(status))
        print_error("%s: killed by signal %d\n", test->name, WTERMSIG(status));
    return status != 0;
}
