/* SPDX-License-Identifier: MIT */
/*
 * Caches in a real memory control group, where this process may make one. A batch that does not fit is KVLAZY_EBUDGET;
 * whatever passes the limit of the group is killed by the kernel, and the test says so. Every scenario runs in a child
 * of its own, in a group of its own.
 */
#include "support.h"
#include "host/limits_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
enum { ROW = 64 << 10, CACHES = 24, OLD_US = 110000, NO_GROUP = 77, NO_FILE = 78 };

/* ------------------------------------------------------------------------------------------- a group */

static bool write_text(const char *dir, const char *name, const char *text)
{
    char path[KVL_PATH_BYTES + 64];
    bool done;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return false;
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return false;
    done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    return close(fd) == 0 && done;
}

/* Where this process's groups may have one below. */
static bool own_group(bool v2, char *dir, size_t bytes)
{
    char line[KVL_PATH_BYTES], path[KVL_PATH_BYTES] = "";
    FILE *f = fopen("/proc/self/cgroup", "r");

    while (f && fgets(line, sizeof line, f))
        if (v2 ? sscanf(line, "0::%s", path) == 1 : sscanf(line, "%*d:memory:%s", path) == 1)
            break;
    if (f)
        fclose(f);
    if (!*path)
        return false;
    snprintf(dir, bytes, "/sys/fs/cgroup%s%s/kvlazy-test-%d", v2 ? "" : "/memory", strcmp(path, "/") ? path : "",
             (int)getpid());
    return true;
}

static bool make_group(char *dir, size_t bytes, const char *limit_bytes)
{
    static const char *const limits[2] = {"memory.limit_in_bytes", "memory.max"};

    for (int v2 = 0; v2 < 2; v2++) {
        if (!own_group(v2, dir, bytes) || mkdir(dir, 0777) != 0)
            continue;
        if (write_text(dir, limits[v2], limit_bytes))
            return true;
        rmdir(dir);
    }
    return false;
}

static void skip_without(bool there, const char *what)
{
    if (there)
        return;
    print_message("%s: skipped\n", what);
    skip();
}

/* live() returns 0, or the number of the step that failed. */
static void in_group(const char *limit_bytes, int (*live)(void))
{
    char dir[KVL_PATH_BYTES + 64];
    int status;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip_without(false, "what a sanitizer takes does not fit the group");
#endif
    skip_without(make_group(dir, sizeof dir, limit_bytes), "no memory control group can be made here");
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        _exit(write_text(dir, "cgroup.procs", "0") ? live() : NO_GROUP);
    }
    waitpid(child, &status, 0);
    for (int i = 0; i < 100 && rmdir(dir) != 0 && errno == EBUSY; i++)
        usleep(10000);
    skip_without(!WIFEXITED(status) || WEXITSTATUS(status) != NO_GROUP, "no process may join a new group here");
    skip_without(!WIFEXITED(status) || WEXITSTATUS(status) != NO_FILE, "no file system with pages of its own here");
    if (WIFSIGNALED(status))
        fail_msg("killed by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Takes what there is, is refused, and goes on living. */
static int one_cache(void)
{
    kvlazy_layer layer = {.k_row_bytes = 128 << 10, .v_row_bytes = 128 << 10};
    kvlazy_params params;
    kvlazy_cache *cache;
    kvlazy_tensor k, v;
    int n_refused = 0;
    kvlazy_pos pos = 0;
    kvlazy_seq_id seq = 0;

    kvlazy_params_init(&params);
    params.kv_size = 4096; /* 1 GiB */
    params.layers = &layer;
    params.n_layer = 1;
    if (kvlazy_create(&params, &cache) || kvlazy_k(cache, 0, &k) || kvlazy_v(cache, 0, &v))
        return 1;
    while (pos < 4096 && n_refused < 3) {
        kvlazy_ubatch u = UBATCH(1, &pos, &seq);
        kvlazy_slot slot;

        kvlazy_init_batch(cache);
        int status = kvlazy_prepare(cache, &u, 1, &slot);
        if (!status)
            status = kvlazy_apply_ubatch(cache, &slot, &u);
        if (!status) {
            memset((char *)k.data + slot.cell[0] * k.cell_stride, 1, k.row_bytes);
            memset((char *)v.data + slot.cell[0] * v.cell_stride, 1, v.row_bytes);
        }
        kvlazy_end_batch(cache);
        if (status && status != KVLAZY_EBUDGET)
            return 2;
        if (status)
            usleep(110000); /* so that it looks again */
        n_refused += status == KVLAZY_EBUDGET;
        pos += !status;
    }
    if (n_refused < 3 || kvlazy_room(cache, 0) != 0)
        return 3;
    if (pos < 160 || kvlazy_check(cache, NULL)) /* 40 of 64 MiB; the rest is ours before */
        return 4;
    kvlazy_clear(cache, true);
    usleep(110000);
    if (kvlazy_room(cache, 0) < 160)
        return 5;
    kvlazy_destroy(cache);
    return 0;
}

static void a_small_group(void **state)
{
    (void)state;
    in_group("67108864", one_cache);
}

/* ------------------------------------------------------------------------------------------- rows of 64 KiB */

typedef struct user {
    kvlazy_cache *cache;
    kvlazy_tensor k;
    kvlazy_slot slot;
    kvlazy_pos end;
} user;

static bool open_user(user *u, kvlazy_cache *with, uint32_t flags)
{
    static const kvlazy_layer layer = {.k_row_bytes = ROW};
    kvlazy_params p;

    memset(u, 0, sizeof *u);
    kvlazy_params_init(&p);
    p.kv_size = 16384;
    p.layers = &layer;
    p.n_layer = 1;
    p.with = with;
    p.flags = flags;
    return kvlazy_create(&p, &u->cache) == 0 && kvlazy_k(u->cache, 0, &u->k) == 0;
}

static kvlazy_ubatch rows_of(const user *u, uint32_t n_row, kvlazy_pos *pos, kvlazy_seq_id *seq)
{
    for (uint32_t i = 0; i < n_row; i++) {
        pos[i] = u->end + (kvlazy_pos)i;
        seq[i] = 0;
    }
    return UBATCH(n_row, pos, seq);
}

static int plan(user *u, uint32_t n_row)
{
    kvlazy_pos pos[8192];
    kvlazy_seq_id seq[8192];
    kvlazy_ubatch b = rows_of(u, n_row, pos, seq);

    return kvlazy_prepare(u->cache, &b, 1, &u->slot);
}

static int apply(user *u, uint32_t n_row)
{
    kvlazy_pos pos[8192];
    kvlazy_seq_id seq[8192];
    kvlazy_ubatch b = rows_of(u, n_row, pos, seq);
    int status = kvlazy_apply_ubatch(u->cache, &u->slot, &b);

    u->end += status ? 0 : (kvlazy_pos)n_row;
    return status;
}

static void write_rows_of(user *u)
{
    for (uint32_t i = 0; i < u->slot.n_token; i++)
        memset((char *)u->k.data + u->slot.cell[i] * u->k.cell_stride, 1, ROW);
}

static int take(user *u, uint32_t n_row)
{
    kvlazy_init_batch(u->cache);
    int status = plan(u, n_row);
    status = status ? status : apply(u, n_row);
    if (!status)
        write_rows_of(u);
    kvlazy_end_batch(u->cache);
    return status;
}

/* Another part of the program takes memory. */
static void grab(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at != MAP_FAILED)
        memset(at, 1, bytes);
}

static void leave_only(size_t bytes)
{
    while (kvl_headroom_bytes("/") > bytes + MIB)
        grab(MIB);
}

#define step(number, condition) \
    if (!(condition))           \
    return (number)

/* ------------------------------------------------------------------------------------------- the ways to be killed */

static int live_with_others(void)
{
    user u;

    step(1, open_user(&u, NULL, 0));
    step(2, take(&u, 16) == KVLAZY_OK);
    leave_only(20 * MIB);
    step(3, take(&u, 29 * 16) == KVLAZY_EBUDGET); /* at once */
    usleep(OLD_US);
    step(4, take(&u, 29 * 16) == KVLAZY_EBUDGET);
    step(5, take(&u, 12 * 16) == KVLAZY_OK);
    return 0;
}

static void others_took_it_since(void **state)
{
    (void)state;
    in_group("536870912", live_with_others);
}

static int live_linked(uint32_t flags)
{
    user u, v;

    step(1, open_user(&u, NULL, flags) && open_user(&v, u.cache, flags));
    leave_only(48 * MIB);
    kvlazy_init_batch(u.cache);
    step(2, plan(&u, 450) == KVLAZY_OK);
    step(3, plan(&v, 450) == KVLAZY_EBUDGET);
    kvlazy_end_batch(u.cache);
    step(4, plan(&u, 300) == KVLAZY_OK);
    step(5, plan(&v, 300) == KVLAZY_OK);
    usleep(OLD_US);
    step(6, apply(&u, 300) == KVLAZY_OK);
    step(7, apply(&v, 300) == KVLAZY_OK);
    write_rows_of(&u);
    write_rows_of(&v);
    kvlazy_end_batch(u.cache);
    usleep(OLD_US);
    step(8, take(&v, 300) == KVLAZY_EBUDGET);
    return 0;
}

static int live_linked_ahead(void)
{
    return live_linked(0);
}

static int live_linked_on_faults(void)
{
    return live_linked(KVLAZY_NO_COMMIT_AHEAD);
}

static void linked_caches_count_together(void **state)
{
    (void)state;
    in_group("536870912", live_linked_ahead);
}

static void pages_that_come_when_written(void **state)
{
    (void)state;
    in_group("536870912", live_linked_on_faults);
}

static int live_many(void)
{
    static user u[CACHES];
    int n_ok = 0;

    for (int i = 0; i < CACHES; i++) {
        step(1, open_user(&u[i], NULL, 0));
        step(2, take(&u[i], 1) == KVLAZY_OK);
    }
    for (int i = 0; i < CACHES; i++) {
        int status = take(&u[i], 30 * 16);

        step(3, status == KVLAZY_OK || status == KVLAZY_EBUDGET);
        n_ok += status == KVLAZY_OK;
    }
    step(4, n_ok >= 15 && n_ok < CACHES);
    return 0;
}

static void caches_of_a_process_count_together(void **state)
{
    (void)state;
    in_group("536870912", live_many);
}

static void *take_and_clear(void *arg)
{
    user *u = arg;
    unsigned seed = (unsigned)(u->end + 1);

    u->end = 0;
    for (int i = 0; i < 60; i++) {
        int status = take(u, 16 * (1 + (uint32_t)rand_r(&seed) % 40));

        if (status && status != KVLAZY_EBUDGET)
            return arg;
        if (status || rand_r(&seed) % 8 == 0) {
            kvlazy_clear(u->cache, true);
            u->end = 0;
        }
    }
    return NULL;
}

static int live_in_threads(void)
{
    enum { THREADS = 8 };
    static user u[THREADS];
    pthread_t thread[THREADS];
    void *failed = NULL;

    for (int i = 0; i < THREADS; i++) {
        step(1, open_user(&u[i], NULL, i % 2 ? KVLAZY_NO_COMMIT_AHEAD : 0));
        u[i].end = i;
        step(2, pthread_create(&thread[i], NULL, take_and_clear, &u[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], &failed);
        step(3, !failed);
    }
    return 0;
}

static void caches_in_threads(void **state)
{
    (void)state;
    in_group("268435456", live_in_threads);
}

/* ------------------------------------------------------------------------------------------- the cache of files */

/* A hole takes pages of the cache like any data, and no time to write. Not on tmpfs, whose pages stay. */
static int open_file(size_t bytes)
{
    static const char *const dirs[] = {"/var/tmp", "/tmp", "."};
    enum { TMPFS = 0x01021994 };

    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        char path[64];
        struct statfs fs;

        snprintf(path, sizeof path, "%s/kvlazy-cgroup-XXXXXX", dirs[i]);
        if (statfs(dirs[i], &fs) != 0 || fs.f_type == TMPFS)
            continue;
        int fd = mkstemp(path);
        if (fd < 0)
            continue;
        unlink(path);
        if (ftruncate(fd, (off_t)bytes) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

static bool read_all(int fd, size_t bytes)
{
    static char buffer[1 << 20];
    size_t at = 0;

    for (ssize_t n; at < bytes && (n = pread(fd, buffer, sizeof buffer, (off_t)at)) > 0;)
        at += (size_t)n;
    return at == bytes;
}

/* Naive: what was read twice counts as used, and plain memory gets what a batch is refused. */
static int live_beside_a_file(void)
{
    user u;
    int fd = open_file(400 * MIB);

    step(NO_FILE, fd >= 0);
    step(1, read_all(fd, 400 * MIB) && read_all(fd, 400 * MIB) && read_all(fd, 400 * MIB));
    step(2, open_user(&u, NULL, 0));
    step(3, take(&u, 200 * 16) == KVLAZY_OK);
    usleep(OLD_US);
    step(4, take(&u, 200 * 16) == KVLAZY_OK);
    step(5, take(&u, 200 * 16) == KVLAZY_EBUDGET);
    return 0;
}

static void a_file_that_was_read_twice(void **state)
{
    (void)state;
    in_group("536870912", live_beside_a_file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_group),
        cmocka_unit_test(others_took_it_since),
        cmocka_unit_test(linked_caches_count_together),
        cmocka_unit_test(pages_that_come_when_written),
        cmocka_unit_test(caches_of_a_process_count_together),
        cmocka_unit_test(caches_in_threads),
        cmocka_unit_test(a_file_that_was_read_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
