/* SPDX-License-Identifier: MIT */
/*
 * table: memory tables of every size and version become whole ones or are refused, and a host that lacks what a host
 * may lack has an answer to every question.
 */
#include "unit.h"

#include <stdio.h>

#include "fake_mem.h"
#include "memory/table.h"

static struct fake_mem fake;

static kvlazy_mem full(void)
{
    return fake.table;
}

/* The seven functions that every host has, and none of the others. */
static kvlazy_mem least(void)
{
    kvlazy_mem mem = fake.table;

    memset((char *)&mem + offsetof(kvlazy_mem, set_writable), 0, sizeof mem - offsetof(kvlazy_mem, set_writable));
    return mem;
}

static int setup(void **state)
{
    (void)state;
    fake_init(&fake);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_done(&fake);
    return 0;
}

static void null_is_this_host(void **state)
{
    kvlazy_mem mem;

    (void)state;
    assert_true(kvl_table_read(NULL, &mem));
    assert_true(mem.commit == kvlazy_mem_host()->commit);
    assert_int_equal(mem.struct_size, sizeof mem);
}

/* A size that ends between two members from set_writable on is an earlier version; any other is a mistake. */
static void tables_of_every_size(void **state)
{
    kvlazy_mem theirs = full(), mem;

    (void)state;
    for (size_t size = 0; size < sizeof theirs; size++) {
        bool between = size >= offsetof(kvlazy_mem, set_writable) && size % sizeof(void *) == 0;

        theirs.struct_size = size;
        assert_int_equal(kvl_table_read(&theirs, &mem), between);
        if (!between)
            continue;
        assert_int_equal(mem.struct_size, sizeof mem);
        assert_memory_equal(&mem.ctx, &theirs.ctx, size - offsetof(kvlazy_mem, ctx));
        for (size_t i = size; i < sizeof mem; i++)
            assert_int_equal(((unsigned char *)&mem)[i], 0);
    }
}

static void what_every_host_has_is_needed(void **state)
{
    static const size_t needed[] = {offsetof(kvlazy_mem, page_bytes), offsetof(kvlazy_mem, reserve),
                                    offsetof(kvlazy_mem, unreserve),  offsetof(kvlazy_mem, commit),
                                    offsetof(kvlazy_mem, decommit),   offsetof(kvlazy_mem, resident),
                                    offsetof(kvlazy_mem, now_ms)};
    kvlazy_mem mem, theirs = least();

    (void)state;
    assert_true(kvl_table_read(&theirs, &mem));
    for (size_t i = 0; i < N_OF(needed); i++) {
        theirs = full();
        memset((char *)&theirs + needed[i], 0, sizeof(void *));
        assert_false(kvl_table_read(&theirs, &mem));
    }
}

static size_t huge_bytes;

static size_t huge_page_bytes(void *ctx)
{
    (void)ctx;
    return huge_bytes;
}

static void sizes_of_pages(void **state)
{
    static const struct {
        size_t page, huge; /* huge 0: the host does not say */
        uint64_t small_answer, huge_answer;
    } rows[] = {
        {4096, 0, 4096, 2 << 20},
        {65536, 0, 65536, 2 << 20},
        {4096, 1 << 16, 4096, 1 << 16},
        {4 << 20, 0, 4 << 20, 4 << 20},
        {4096, 3000000, 4096, 0},
        {5000, 1 << 21, 0, 0},
        {0, 1 << 21, 0, 0},
        {5000, 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        kvlazy_mem mem = least();

        fake.page = rows[i].page;
        huge_bytes = rows[i].huge;
        mem.huge_page_bytes = huge_bytes ? huge_page_bytes : NULL;
        assert_int_equal(kvl_page_bytes(&mem, false), rows[i].small_answer);
        assert_int_equal(kvl_page_bytes(&mem, true), rows[i].huge_answer);
    }
    fake.page = 4096;
}

static void a_host_that_lacks_all_it_may_lack(void **state)
{
    kvlazy_mem mem = least();
    kvl_account account = {{0}}, other = {{0}};
    char text[KVL_WHY_BYTES];

    (void)state;
    assert_int_equal(kvl_host_traits(&mem), 0);
    assert_true(kvl_host_headroom(&mem, "/") == UINT64_MAX);
    assert_true(kvl_host_max_mappings(&mem) == UINT64_MAX);
    assert_int_equal(kvl_host_now_ns(&mem), 0);
    assert_int_equal(kvl_host_process(&mem), 0);
    assert_string_equal(kvl_host_why(&mem, 1 << 30, text), "");
    assert_int_equal(kvl_host_count(&mem, &account, KVLAZY_COUNT_TAKEN, 100), 100);
    assert_int_equal(kvl_host_count(&mem, &account, KVLAZY_COUNT_PROMISED, 7), 7);
    assert_int_equal(kvl_host_count(&mem, &account, KVLAZY_COUNT_TAKEN, (uint64_t)-40), 60);
    assert_int_equal(kvl_host_count(&mem, &other, KVLAZY_COUNT_TAKEN, 0), 0); /* an account a group */
}

static uint64_t no_mappings(void *ctx)
{
    (void)ctx;
    return 0;
}

static uint64_t some_mappings(void *ctx)
{
    (void)ctx;
    return 65530;
}

static int a_reason(void *ctx, size_t bytes, char *text, size_t text_bytes)
{
    (void)ctx;
    snprintf(text, text_bytes, "%zu are too many", bytes);
    return 1;
}

static int no_reason(void *ctx, size_t bytes, char *text, size_t text_bytes)
{
    (void)ctx;
    (void)bytes;
    snprintf(text, text_bytes, "never shown");
    return 0;
}

static uint64_t sum_of_all;

static uint64_t count(void *ctx, int what, uint64_t change)
{
    (void)ctx;
    (void)what;
    return sum_of_all += change;
}

static void a_host_that_answers(void **state)
{
    kvlazy_mem mem = least();
    kvl_account account = {{0}};
    char text[KVL_WHY_BYTES];

    (void)state;
    mem.max_mappings = no_mappings;
    assert_true(kvl_host_max_mappings(&mem) == UINT64_MAX); /* 0: no limit is known */
    mem.max_mappings = some_mappings;
    assert_int_equal(kvl_host_max_mappings(&mem), 65530);
    mem.why_refused = a_reason;
    assert_string_equal(kvl_host_why(&mem, 12, text), ": 12 are too many");
    assert_string_equal(kvl_host_why(&mem, 0, text), "");
    mem.why_refused = no_reason;
    assert_string_equal(kvl_host_why(&mem, 12, text), "");
    mem.count = count;
    sum_of_all = 5;
    assert_int_equal(kvl_host_count(&mem, &account, KVLAZY_COUNT_TAKEN, 10), 15);
    assert_int_equal(account.sum[KVLAZY_COUNT_TAKEN], 0); /* the host keeps it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_this_host),
        cmocka_unit_test(tables_of_every_size),
        cmocka_unit_test(what_every_host_has_is_needed),
        cmocka_unit_test(sizes_of_pages),
        cmocka_unit_test(a_host_that_lacks_all_it_may_lack),
        cmocka_unit_test(a_host_that_answers),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
