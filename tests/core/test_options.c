/* SPDX-License-Identifier: MIT */
/*
 * Options from text and from the environment: which names and units are taken, what is refused with a line
 * that names option and value, and that a refusal sets nothing. No cache is created here.
 */
#define _DEFAULT_SOURCE
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option {
    const char *name, *value;
    bool good;
    uint64_t want;
};

static uint64_t value_of(const kvlazy_params *p, const char *name)
{
    if (!strcmp(name, "kv-size"))
        return p->kv_size;
    if (!strcmp(name, "budget-bytes"))
        return p->budget_bytes;
    if (!strcmp(name, "page-bytes"))
        return p->page_bytes;
    if (!strcmp(name, "warm-bytes"))
        return p->warm_bytes;
    return strstr(name, "idle") ? p->slot_shrink_idle_ms : p->kv_size_initial;
}

static void options(void **state)
{
    static const struct option table[] = {
        {"kv-size", "4096", true, 4096},
        {"kv-size", "4k", true, 4096},
        {"kv-size", "1m", true, 1 << 20},
        {"kv-size", "1g", true, 1 << 30},
        {"kv-size", "1t", false, 0},
        {"kv-size", "5g", false, 0},
        {"kv-size", "4294967296", false, 0},
        {"kv-size", "18446744073709551616", false, 0},
        {"kv-size", "99999999999999999999999999", false, 0},
        {"kv-size", "-1", false, 0},
        {"kv-size", "-4k", false, 0},
        {"kv-size", "", false, 0},
        {"kv-size", "k", false, 0},
        {"kv-size", "4kk", false, 0},
        {"kv-size", "4 k", false, 0},
        {"kv-size", "4k ", false, 0},
        {"kv-size", "4.5k", false, 0},
        {"kv-size", "0x10", false, 0},
        {"kv-size", "4s", false, 0},
        {"kv-size", "4ms", false, 0},
        {"kv-size", "four", false, 0},
        {"slot-initial-ctx", "0", true, 0},
        {"slot-initial-ctx", "256", true, 256},
        {"slot-initial-ctx", "2k", true, 2048},
        {"slot-initial-ctx", "-0x1", false, 0},
        {"kv-size-initial", "3k", true, 3072},
        {"kv-size-initial", "nan", false, 0},
        {"slot-shrink-idle-ms", "30000", true, 30000},
        {"slot-shrink-idle-ms", "0", true, 0},
        {"slot-shrink-idle-ms", "30s", true, 30000},
        {"slot-shrink-idle-ms", "250ms", true, 250},
        {"slot-shrink-idle-ms", "2min", true, 120000},
        {"slot-shrink-idle-ms", "1h", true, 3600000},
        {"slot-shrink-idle-ms", "1193h", true, 4294800000},
        {"slot-shrink-idle-ms", "1194h", false, 0}, /* 2^32 ms are 1193.05 h */
        {"slot-shrink-idle-ms", "30k", false, 0},
        {"slot-shrink-idle-ms", "30m", false, 0},
        {"slot-shrink-idle-ms", "-30s", false, 0},
        {"slot-shrink-idle-ms", "30sec", false, 0},
        {"slot-shrink-idle-ms", "s", false, 0},
        {"shrink-idle-ms", "5s", true, 5000},
        {"budget-bytes", "0", true, 0},
        {"budget-bytes", "512m", true, 512u << 20},
        {"budget-bytes", "3g", true, 3ull << 30},
        {"budget-bytes", "2t", true, 2ull << 40},
        {"budget-bytes", "16777216t", false, 0}, /* 2^64 */
        {"budget-bytes", "1s", false, 0},
        {"budget-bytes", "-1", false, 0},
        {"page-bytes", "64k", true, 65536},
        {"page-bytes", "0", true, 0},
        {"page-bytes", "64kb", false, 0},
        {"warm-bytes", "64m", true, 64 << 20},
        {"warm-bytes", "-1", false, 0},
        {"n-pad", "256", false, 0},
        {"kv_size", "256", false, 0},
        {"", "256", false, 0},
    };
    struct rig *r = *state;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct option *o = &table[i];
        kvlazy_params was;
        int status, lines = r->n_log;

        r->params.kv_size = r->params.kv_size_initial = r->params.slot_shrink_idle_ms = 77;
        r->params.budget_bytes = r->params.page_bytes = r->params.warm_bytes = 77;
        was = r->params;
        r->log_bytes = 0;
        status = kvlazy_params_set(&r->params, o->name, o->value);
        if (status != (o->good ? KVLAZY_OK : KVLAZY_EINVAL))
            print_error("%s=%s\n", o->name, o->value);
        expect(status, o->good ? KVLAZY_OK : KVLAZY_EINVAL);
        if (o->good) {
            assert_int_equal(value_of(&r->params, o->name), o->want);
            continue;
        }
        assert_memory_equal(&r->params, &was, sizeof was);
        assert_int_equal(r->n_log, lines + 1);
        assert_non_null(strstr(r->log, o->name));
        assert_non_null(strstr(r->log, o->value));
    }
}

static void options_that_are_null(void **state)
{
    struct rig *r = *state;

    expect(kvlazy_params_set(NULL, "kv-size", "4k"), KVLAZY_EINVAL);
    expect(kvlazy_params_set(&r->params, NULL, "4k"), KVLAZY_EINVAL);
    expect(kvlazy_params_set(&r->params, "kv-size", NULL), KVLAZY_EINVAL);
    expect(kvlazy_params_from_env(NULL), KVLAZY_EINVAL);
    r->params.log = NULL;
    expect(kvlazy_params_set(&r->params, "kv-size", "x"), KVLAZY_EINVAL);
}

static void forget_environment(void)
{
    static const char *const names[] = {"KV_SIZE",        "SLOT_INITIAL_CTX",    "KV_SIZE_INITIAL",
                                        "SHRINK_IDLE_MS", "SLOT_SHRINK_IDLE_MS", "BUDGET_BYTES",
                                        "PAGE_BYTES",     "WARM_BYTES"};
    char name[64];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "KVLAZY_%s", names[i]);
        unsetenv(name);
        snprintf(name, sizeof name, "LLAMA_ARG_%s", names[i]);
        unsetenv(name);
    }
}

static void environment(void **state)
{
    struct rig *r = *state;
    kvlazy_params was = r->params;

    forget_environment();
    ok(kvlazy_params_from_env(&r->params));
    assert_memory_equal(&r->params, &was, sizeof was);
    setenv("LLAMA_ARG_SLOT_INITIAL_CTX", "1k", 1);
    setenv("LLAMA_ARG_SLOT_SHRINK_IDLE_MS", "7s", 1);
    setenv("KVLAZY_SLOT_INITIAL_CTX", "2k", 1); /* ours goes before */
    setenv("KVLAZY_BUDGET_BYTES", "1g", 1);
    setenv("KVLAZY_PAGE_BYTES", "16k", 1);
    ok(kvlazy_params_from_env(&r->params));
    assert_int_equal(r->params.kv_size_initial, 2048);
    assert_int_equal(r->params.slot_shrink_idle_ms, 7000);
    assert_int_equal(r->params.budget_bytes, 1 << 30);
    assert_int_equal(r->params.page_bytes, 16384);
    assert_int_equal(r->params.kv_size, 512);
    forget_environment();
    setenv("KVLAZY_SHRINK_IDLE_MS", "9s", 1);
    ok(kvlazy_params_from_env(&r->params));
    assert_int_equal(r->params.slot_shrink_idle_ms, 9000);
    forget_environment();
}

static void a_bad_environment_sets_nothing(void **state)
{
    struct rig *r = *state;
    kvlazy_params was;

    forget_environment();
    setenv("KVLAZY_KV_SIZE", "8k", 1);
    setenv("KVLAZY_SLOT_INITIAL_CTX", "1k", 1);
    setenv("KVLAZY_SLOT_SHRINK_IDLE_MS", "soon", 1);
    setenv("KVLAZY_BUDGET_BYTES", "1g", 1);
    was = r->params;
    expect(kvlazy_params_from_env(&r->params), KVLAZY_EINVAL);
    assert_memory_equal(&r->params, &was, sizeof was);
    assert_true(r->n_log > 0);
    assert_non_null(strstr(r->log, "soon"));
    setenv("KVLAZY_SLOT_SHRINK_IDLE_MS", "1s", 1);
    setenv("KVLAZY_BUDGET_BYTES", "-1", 1);
    expect(kvlazy_params_from_env(&r->params), KVLAZY_EINVAL);
    assert_memory_equal(&r->params, &was, sizeof was);
    forget_environment();
}

static void create_reads_no_environment(void **state)
{
    struct rig *r = *state;
    kvlazy_plan_info plan = {.struct_size = sizeof plan};

    setenv("KVLAZY_KV_SIZE", "8k", 1);
    setenv("KVLAZY_SLOT_INITIAL_CTX", "junk", 1);
    ok(kvlazy_plan(&r->params, &plan));
    assert_int_equal(plan.kv_size, 512);
    forget_environment();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(options),
        RIG_TEST(options_that_are_null),
        RIG_TEST(environment),
        RIG_TEST(a_bad_environment_sets_nothing),
        RIG_TEST(create_reads_no_environment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
