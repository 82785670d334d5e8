/* SPDX-License-Identifier: MIT */
/*
 * The cache over the real kernel, judged by mincore and /proc/self/maps: nothing resident at create, what is
 * written and no more, all of it back while the process idles, flags on the whole reservation, mappings that stay
 * few, pages that are locked, children. The clock is the only member of the host's table that is replaced. What
 * limits of a process do is in test_os_limits.c.
 */
#define _DEFAULT_SOURCE
#include "os_support.h"
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- flags ---- */

static bool kernel_has(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Naive: flags on parts, as they are used; or none, and then khugepaged fills holes that were given back, a crash dumps
 * a terabyte, and a child that lives on keeps every page. */
static void flags_are_on_the_whole_reservation(void **state)
{
    const bool huge_kernel = kernel_has("/sys/kernel/mm/transparent_hugepage");

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig *r = rig_new();

        r->params.flags = (i & 1 ? KVLAZY_DONTFORK : 0) | (i & 2 ? KVLAZY_HUGE_PAGES : 0);
        open_host(r, 8192);
        ok(turn(r, 0, 0, 3000));
        ok(kvlazy_trim(r->cache, 100));
        struct mapping m = mapping_of(r);
        assert_int_equal(map_lines_of(r), 1);
        assert_true(has(&m, "dd"));
        assert_int_equal(has(&m, "dc"), i & 1);
        if (huge_kernel) { /* larger pages than the host's own may need no advice, and are never kept away */
            bool larger = stats(r).page_bytes > (uint64_t)sysconf(_SC_PAGESIZE);

            assert_int_equal(has(&m, "nh"), !larger);
            if (!larger || (i & 2))
                assert_int_equal(has(&m, "hg"), larger);
        }
        rig_free(r);
    }
}

/* One byte brings what the host says that it grants, and that is what a cache counts in. Naive: the size is read off a
 * setting, of which there are several, and others decide. */
static void the_host_grants_what_it_says(void **state)
{
    static const uint32_t ways[] = {KVLAZY_RESERVE_ANY_PAGES, KVLAZY_RESERVE_HUGE_PAGES, 0};
    const size_t block = 4 << 20, own = (size_t)sysconf(_SC_PAGESIZE);
    const kvlazy_mem *host = kvlazy_mem_host();
    struct rig *r = *state;
    char text[160];

    for (int i = 0; i < 3; i++) {
        size_t page = i < 2 ? host->granted(NULL, ways[i]) : own;
        unsigned char *map = host->reserve(NULL, 2 * block, ways[i]);

        assert_non_null(map);
        assert_true(page >= own && page <= block && !(page & (page - 1)));
        assert_int_equal(page, i < 2 ? host->granted(NULL, ways[i]) : own); /* it stays so */
        unsigned char *at = map + (block - (uintptr_t)map % block);
        at[page - 1] = 1;
        assert_int_equal(host->resident(NULL, at, block), page);
        assert_int_equal(host->unreserve(NULL, map, 2 * block), 0);
        print_message("a page of %zu KiB\n", page >> 10);
    }
    assert_int_equal(host->why_not_granted(NULL, 64 << 10, text, sizeof text), 1);
    assert_non_null(strstr(text, "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"));
    open_host(r, 8192);
    assert_true(stats(r).page_bytes >= own && stats(r).page_bytes <= 64 << 10);
}

/* Naive: gives back part of a huge page. Resident memory drops, and the machine has no more than before, until the
 * kernel splits the page; so the test is not what is resident, but that no huge page is in pieces. */
static void huge_pages_stay_whole(void **state)
{
    struct rig *r = *state;

    r->params.flags = KVLAZY_HUGE_PAGES;
    open_host(r, 16384);
    ok(turn(r, 0, 0, 9000));
    struct mapping m = mapping_of(r);
    if (!m.huge_bytes) {
        print_message("the kernel hands out no huge pages\n");
        skip();
    }
    if (m.huge_bytes < m.rss_bytes) {
        print_message("the kernel is short of huge pages\n");
        skip();
    }
    uint64_t before = m.rss_bytes;
    for (kvlazy_pos keep = 7777; keep > 100; keep = keep * 2 / 3) {
        ok(kvlazy_seq_rm(r->cache, 0, keep, -1));
        ok(kvlazy_trim(r->cache, 0));
        m = mapping_of(r);
        assert_int_equal(m.huge_bytes, m.rss_bytes);
        assert_int_equal(m.rss_bytes, stats(r).touched_bytes);
    }
    assert_true(m.rss_bytes < before);
    sound(r);
}

/* A name in /proc/self/maps, where the kernel has them. */
static void the_mapping_has_a_name(void **state)
{
    struct rig *r = *state;
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int error;

    assert_true(page != MAP_FAILED);
    error = prctl(0x53564d41, 0, page, 4096, "test") ? errno : 0; /* PR_SET_VMA, PR_SET_VMA_ANON_NAME */
    munmap(page, 4096);
    if (error) {
        print_message("a kernel without names of mappings: %s\n", strerror(error));
        skip();
    }
    open_host(r, 8192);
    struct mapping m = mapping_of(r);
    assert_true(m.named);
}

/* ---- mappings ---- */

/* Naive: mprotect, or a flag, range by range: each splits the mapping. */
static void mappings_stay_few(void **state)
{
    struct rig *r = *state;
    uint64_t random = 1;
    kvlazy_tensor now;

    r->params.kv_size_initial = 16;
    open_host(r, 1024);
    for (int i = 0; i < 10000; i++) {
        kvlazy_seq_id s = (kvlazy_seq_id)(next_random(&random) & 1);
        kvlazy_pos max = kvlazy_seq_pos_max(r->cache, s);

        ok(turn(r, s, max + 1, 1 + (uint32_t)(next_random(&random) % 40)));
        if (i % 5 == 0)
            ok(kvlazy_seq_rm(r->cache, s, max / 2 + 1, max / 2 + 9)); /* holes */
        ok(kvlazy_trim(r->cache, i % 3 ? 0 : 1 + (uint32_t)(next_random(&random) % 100)));
        r->fake.now += 100;
        ok(kvlazy_poll(r->cache, NULL));
    }
    assert_int_equal(map_lines_of(r), 1);
    for (int k = 0; k < 4; k++) {
        ok(kvlazy_k(r->cache, r->layers[k].id, &now));
        assert_ptr_equal(now.data, r->tensor[2 * k].data);
    }
    sound(r);
}

/* Naive: what a release leaves at the edges adds up. The floor is the same to the page, by mincore. */
static void a_hundred_cycles_return_to_one_floor(void **state)
{
    struct rig *r = *state;
    uint64_t floor_bytes = 0;

    open_host(r, 8192);
    ok(turn(r, 0, 0, 33));
    ok(turn(r, 1, 0, 7));
    for (int i = 0; i < 100; i++) {
        ok(turn(r, 0, 33, 500 + 13 * (uint32_t)i));
        ok(turn(r, 1, 7, 100));
        ok(kvlazy_seq_rm(r->cache, 0, 33, -1));
        ok(kvlazy_seq_rm(r->cache, 1, 7, -1));
        ok(kvlazy_trim(r->cache, 0));
        floor_bytes = i ? floor_bytes : resident(r);
        assert_int_equal(resident(r), floor_bytes);
    }
    assert_int_equal(floor_bytes, cover(r));
    sound(r);
}

/* Naive: one madvise over all that is free. It stops at the locked pages, what lay before them is gone, what lies
 * behind stays, and either all of it is counted or none. */
static void pages_that_are_locked(void **state)
{
    enum { LOCKED = 4 };
    struct rig *r = *state;
    unsigned char *at, vec[LOCKED];
    uint64_t touched;
    size_t page;

    open_host(r, 1024);
    page = r->fake.page;
    ok(turn(r, 0, 0, 1000));
    touched = stats(r).touched_bytes;
    at = (unsigned char *)r->tensor[0].data + 100 * page; /* rows of 2048 bytes: inside what will be free */
    if (!lock_pages(at, LOCKED * page))
        skip();
    ok(kvlazy_seq_rm(r->cache, 0, 10, -1));
    ok(kvlazy_trim(r->cache, 0));
    assert_in_range(resident(r), cover(r) + LOCKED * page, cover(r) + 2 * LOCKED * page); /* all the rest goes */
    assert_int_equal(stats(r).touched_bytes, resident(r));
    assert_int_equal(stats(r).released_bytes, touched - stats(r).touched_bytes);
    assert_true(stats(r).n_os_refusal > 0);
    assert_true(cells_zero(r, 0, 10, 1000));
    sound(r);
    syscall(SYS_munlock, at, LOCKED * page);
    settle(r);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    assert_int_equal(mincore(at, LOCKED * page, vec), 0);
    assert_int_equal((vec[0] | vec[1] | vec[2] | vec[3]) & 1, 0);
    sound(r);
}

/* ---- children ---- */

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

/* ---- the table itself ---- */

static unsigned char in_core(const unsigned char *at)
{
    unsigned char vec = 0;

    assert_int_equal(mincore((void *)(uintptr_t)at, 1, &vec), 0);
    return vec & 1;
}

/* Naive: mprotect back to read-only keeps pages and charge. */
static void a_frontier_of_the_kernel(void **state)
{
    const kvlazy_mem *host = kvlazy_mem_host();
    const size_t page = host->page_bytes(NULL), bytes = 64 * page;

    (void)state;
    unsigned char *at = host->reserve(NULL, bytes, KVLAZY_RESERVE_READ_ONLY | KVLAZY_RESERVE_DONTFORK);
    assert_non_null(at);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(at[40 * page], 0);
        assert_int_equal(host->set_writable(NULL, at, 16 * page, 1, KVLAZY_RESERVE_DONTFORK), 0);
        memset(at, 0x77, 16 * page);
        assert_int_equal(host->set_writable(NULL, at + 16 * page, 16 * page, 1, KVLAZY_RESERVE_DONTFORK), 0);
        memset(at + 16 * page, 0x77, 16 * page);
        assert_int_equal(host->set_writable(NULL, at + 8 * page, 24 * page, 0, KVLAZY_RESERVE_DONTFORK), 0);
        assert_int_equal(at[8 * page - 1], 0x77);
        assert_int_equal(in_core(at + 8 * page), 0);
        assert_int_equal(at[8 * page], 0);
        assert_int_equal(map_lines((uintptr_t)at, (uintptr_t)at + bytes),
                         2); /* what was lowered is one with the rest */
        assert_int_equal(host->set_writable(NULL, at, 8 * page, 0, KVLAZY_RESERVE_DONTFORK), 0);
    }
    pid_t pid = fork();
    if (!pid)
        _exit(write(STDERR_FILENO, at + 8 * page, 1) == 1); /* EFAULT: what was lowered has its flags again */
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(host->unreserve(NULL, at, bytes), 0);
}

/* More ranges than one call takes, more bytes than one call counts (2 GiB), with a refusal in the middle. */
static void releases_of_every_shape(void **state)
{
    enum { N = 2500, BAD = 1800 };
    const kvlazy_mem *host = kvlazy_mem_host();
    const size_t page = host->page_bytes(NULL), bytes = (size_t)3 << 30;
    static kvlazy_range range[N];

    (void)state;
    unsigned char *at = host->reserve(NULL, bytes, 0);
    assert_non_null(at);
    range[0] = (kvlazy_range){at, bytes - 2 * N * page};
    for (size_t i = 1; i < N; i++)
        range[i] = (kvlazy_range){at + bytes - 2 * (N - i) * page, page};
    unsigned char *far = at + range[0].bytes - page; /* past what the first call counts */
    *far = 0x77;
    for (size_t i = 0; i < N; i++)
        *(unsigned char *)range[i].addr = 0x77;
    assert_int_equal(host->decommit(NULL, range, N), N);
    assert_int_equal(in_core(far), 0);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(in_core(range[i].addr), 0);
    assert_int_equal(host->commit(NULL, range + 1, N - 1), 0);
    if (lock_pages(range[BAD].addr, page)) {
        assert_int_equal(host->decommit(NULL, range, N), BAD);
        assert_int_equal(in_core(range[BAD].addr), 1);
        assert_int_equal(host->decommit(NULL, range + BAD + 1, N - BAD - 1), N - BAD - 1);
    }
    assert_int_equal(host->unreserve(NULL, at, bytes), 0);
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
    size_t huge_bytes = host->huge_page_bytes(host->ctx);
    assert_true(huge_bytes > host->page_bytes(host->ctx) && !(huge_bytes & (huge_bytes - 1)));
    assert_int_equal(host->traits(host->ctx) & ~(uint32_t)(KVLAZY_HOST_NUMA | KVLAZY_HOST_LOCKED | KVLAZY_HOST_FAULTS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(create_costs_nothing),
        cmocka_unit_test(what_is_written_is_resident),
        RIG_TEST(it_comes_back_while_idle),
        RIG_TEST(what_was_only_read_goes_too),
        cmocka_unit_test(flags_are_on_the_whole_reservation),
        RIG_TEST(the_host_grants_what_it_says),
        RIG_TEST(huge_pages_stay_whole),
        RIG_TEST(the_mapping_has_a_name),
        RIG_TEST(mappings_stay_few),
        RIG_TEST(a_hundred_cycles_return_to_one_floor),
        RIG_TEST(pages_that_are_locked),
        RIG_TEST(kept_out_of_children),
        RIG_TEST(a_child_has_its_own_image),
        cmocka_unit_test(a_frontier_of_the_kernel),
        cmocka_unit_test(releases_of_every_shape),
        cmocka_unit_test(the_host_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
