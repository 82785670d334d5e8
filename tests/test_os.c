/* SPDX-License-Identifier: MIT */
/*
 * The cache over the real kernel, judged by mincore and /proc/self/maps: nothing resident at create, what is
 * written and no more, all of it back while the process idles, mappings that stay few, and a host that says
 * no. The clock is the only member of the host's table that is replaced.
 */
#define _DEFAULT_SOURCE
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static kvlazy_mem table;

static uint64_t hand_clock(void *ctx)
{
    return ((struct rig *)ctx)->fake.now;
}

/* A cache of the host's own memory: 6 layers, 2 streams. */
static void open_host(struct rig *r, uint32_t kv_size)
{
    static const size_t rows[4][2] = {{2048, 2048}, {1024, 36}, {34, 1000}, {512, 512}};

    table = *kvlazy_mem_host();
    table.ctx = r;
    table.now_ms = hand_clock;
    r->fake.page = (size_t)sysconf(_SC_PAGESIZE);
    r->params.mem = &table;
    r->params.kv_size = kv_size;
    r->params.n_stream = r->params.n_seq_max = 2;
    rig_rows(r, 4, rows);
    rig_open(r);
}

static uint64_t resident(struct rig *r)
{
    size_t page = r->fake.page;
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

static void create_costs_nothing(void **state)
{
    struct rig *r = *state;

    open_host(r, 1 << 20);
    assert_int_equal(resident(r), 0);
    assert_int_equal(stats(r).touched_bytes, 0);
    assert_true(stats(r).reserved_bytes > (uint64_t)14 << 30);
    ok(kvlazy_clear(r->cache, true));
    ok(kvlazy_poll(r->cache, NULL));
    ok(kvlazy_trim(r->cache, 0));
    assert_int_equal(resident(r), 0);
}

static void what_is_written_is_resident(void **state)
{
    static const uint32_t sizes[] = {8192, 1 << 20}, tokens[] = {1, 31, 568, 1400};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rig *r = rig_new();
        kvlazy_pos at = 0;

        open_host(r, sizes[i]);
        for (int k = 0; k < 4; k++) {
            ok(turn(r, 1, at, tokens[k]));
            at += (kvlazy_pos)tokens[k];
            assert_int_equal(resident(r), cover(r));
            assert_int_equal(stats(r).touched_bytes, cover(r));
        }
        rig_free(r);
    }
}

static void it_comes_back_while_idle(void **state)
{
    struct rig *r = *state;
    uint64_t before;

    r->params.kv_size_initial = 256;
    open_host(r, 8192);
    ok(turn(r, 0, 0, 2000));
    ok(turn(r, 1, 0, 1900));
    before = resident(r);
    r->fake.now += 499;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(resident(r), before);
    r->fake.now += 1;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(resident(r), cover(r));
    assert_int_equal(stats(r).released_bytes, before - resident(r));
    assert_true(cells_zero(r, 0, 256, 2000));
    assert_true(cells_zero(r, 1, 256, 2000));
    sound(r);
}

/* Reading padding may make it resident, depending on the kernel; an idle stream gives that back, too. */
static void what_was_only_read_goes_too(void **state)
{
    struct rig *r = *state;

    r->params.n_pad = 1024;
    open_host(r, 8192);
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 0, 1));
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 1024);
    assert_true(cells_zero(r, 0, 1, 1024));
    ok(kvlazy_end_batch(r->cache));
    assert_int_equal(stats(r).touched_bytes, cover(r)); /* reading never makes a page touched */
    ok(kvlazy_trim(r->cache, 0));
    assert_int_equal(resident(r), cover(r));
    assert_int_equal(stats(r).released_bytes, 0);
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 1, 1));
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 1024);
    assert_true(cells_zero(r, 0, 2, 1024));
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_clear(r->cache, true));
    assert_int_equal(resident(r), 0);
}

static int map_lines(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    int n = 0, c;

    if (!maps)
        return -1;
    while ((c = getc(maps)) != EOF)
        n += c == '\n';
    fclose(maps);
    return n;
}

static void mappings_stay_few(void **state)
{
    struct rig *r = *state;
    kvlazy_tensor now;
    int at_start;

    r->params.kv_size_initial = 16;
    open_host(r, 1024);
    if (map_lines() < 0) {
        print_message("no /proc/self/maps here\n");
        skip();
    }
    at_start = map_lines();
    for (int i = 0; i < 3000; i++) {
        kvlazy_seq_id s = i & 1;
        kvlazy_pos max = kvlazy_seq_pos_max(r->cache, s);

        ok(turn(r, s, max + 1, 1 + (uint32_t)i % 40));
        if (i % 5 == 0)
            ok(kvlazy_seq_rm(r->cache, s, max / 2 + 1, max / 2 + 9)); /* holes */
        ok(kvlazy_trim(r->cache, i % 3 ? 0 : 1 + (uint32_t)i % 100));
        r->fake.now += 100;
        ok(kvlazy_poll(r->cache, NULL));
    }
    assert_in_range(map_lines(), 0, at_start + (SANITIZED ? 64 : 8));
    for (int k = 0; k < 4; k++) {
        ok(kvlazy_k(r->cache, r->layers[k].id, &now));
        assert_ptr_equal(now.data, r->tensor[2 * k].data);
    }
    sound(r);
}

static void pages_that_are_locked(void **state)
{
    struct rig *r = *state;
    unsigned char *at, vec[4];
    uint64_t touched;
    bool refused;
    size_t page;

    open_host(r, 1024);
    page = r->fake.page;
    ok(turn(r, 0, 0, 1000));
    touched = stats(r).touched_bytes;
    at = (unsigned char *)r->tensor[0].data + 100 * page; /* rows of 2048 bytes: inside what will be free */
    if (mlock(at, 4 * page)) {
        print_message("mlock: %s\n", strerror(errno));
        skip();
    }
    ok(kvlazy_seq_rm(r->cache, 0, 10, -1));
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    assert_true(cells_zero(r, 0, 10, 1000));
    assert_int_equal(stats(r).released_bytes + stats(r).touched_bytes, touched);
    refused = stats(r).n_os_refusal != 0;
    munlock(at, 4 * page);
    settle(r);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    if (refused) { /* else the lock was none (sanitizers make mlock a no-op), and reading brought pages back */
        assert_int_equal(mincore(at, 4 * page, vec), 0);
        assert_int_equal((vec[0] | vec[1] | vec[2] | vec[3]) & 1, 0);
    }
    sound(r);
}

static void kept_out_of_children(void **state)
{
    struct rig *r = *state;
    unsigned char vec;
    int status;
    pid_t pid;

    r->params.flags = KVLAZY_DONTFORK;
    open_host(r, 1024);
    ok(turn(r, 0, 0, 10));
    pid = fork();
    if (!pid)
        _exit(mincore(r->tensor[0].data, r->fake.page, &vec) && errno == ENOMEM ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    sound(r);
}

static void a_child_has_its_own_image(void **state)
{
    struct rig *r = *state;
    unsigned char *at;
    int status;
    pid_t pid;

    open_host(r, 1024);
    ok(turn(r, 0, 0, 10));
    at = r->tensor[0].data;
    pid = fork();
    if (!pid) {
        bool same = at[0] != 0;

        memset(at, 0, 100);
        _exit(same ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sound(r);
}

static void a_host_without_address_space(void **state)
{
    struct rig *r = *state;
    int status;
    pid_t pid;

    if (SANITIZED) {
        print_message("a sanitizer needs the address space itself\n");
        skip();
    }
    r->params.mem = NULL;
    r->params.kv_size = 1 << 28;
    pid = fork();
    if (!pid) {
        struct rlimit limit = {(rlim_t)256 << 20, (rlim_t)256 << 20};
        kvlazy_cache *cache = NULL;
        int got;

        if (setrlimit(RLIMIT_AS, &limit))
            _exit(77);
        got = kvlazy_create(&r->params, &cache);
        _exit(got == KVLAZY_ENOMEM && !cache ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_host_table(void **state)
{
    const kvlazy_mem *host = kvlazy_mem_host();

    (void)state;
    assert_non_null(host);
    assert_ptr_equal(host, kvlazy_mem_host());
    assert_int_equal(host->struct_size, sizeof *host);
    assert_int_equal(host->page_bytes(host->ctx), sysconf(_SC_PAGESIZE));
    assert_true(host->now_ms(host->ctx) <= host->now_ms(host->ctx));
    assert_null(host->reserve(host->ctx, (size_t)1 << 62, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(create_costs_nothing),
        cmocka_unit_test(what_is_written_is_resident),
        RIG_TEST(it_comes_back_while_idle),
        RIG_TEST(what_was_only_read_goes_too),
        RIG_TEST(mappings_stay_few),
        RIG_TEST(pages_that_are_locked),
        RIG_TEST(kept_out_of_children),
        RIG_TEST(a_child_has_its_own_image),
        RIG_TEST(a_host_without_address_space),
        cmocka_unit_test(the_host_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
