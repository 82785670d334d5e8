/* SPDX-License-Identifier: MIT */
/* params: options from text and from the environment, defaults, and what the log says of a value it refuses. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/kvlazy.h>

static char said[1024];

static void listen(void *ctx, int level, const char *text)
{
    (void)ctx;
    (void)level;
    strncat(said, text, sizeof said - strlen(said) - 1);
}

static kvlazy_params fresh(void)
{
    kvlazy_params p;

    kvlazy_params_init(&p);
    p.log = listen;
    said[0] = 0;
    return p;
}

static void defaults(void **state)
{
    kvlazy_params p = fresh();

    (void)state;
    assert_int_equal(p.struct_size, sizeof p);
    assert_int_equal(p.slot_shrink_idle_ms, 30000);
    assert_int_equal(p.n_stream, 1);
    assert_int_equal(p.n_pad, 256);
    assert_int_equal(p.n_pos_per_token, 1);
    assert_int_equal(p.shrink, KVLAZY_SHRINK_TAILS);
    assert_int_equal(p.kv_size, 0);
    assert_int_equal(p.budget_bytes, 0);
    kvlazy_params_init(NULL);
}

static void good_values(void **state)
{
    static const struct {
        const char *name, *value;
        uint64_t number;
    } rows[] = {
        {"kv-size", "8192", 8192},        {"kv-size", "128k", 131072},      {"kv-size", "1M", 1048576},
        {"kv-size", "010", 10},           {"slot-initial-ctx", "4k", 4096}, {"kv-size-initial", "0", 0},
        {"budget-bytes", "0", 0},         {"budget-bytes", "2g", UINT64_C(2) << 30},
        {"budget-bytes", "1T", UINT64_C(1) << 40}, {"budget-bytes", "18446744073709551614", UINT64_MAX - 1},
        {"slot-shrink-idle-ms", "0", 0},  {"slot-shrink-idle-ms", "500", 500}, {"slot-shrink-idle-ms", "500ms", 500},
        {"slot-shrink-idle-ms", "30s", 30000}, {"shrink-idle-ms", "5min", 300000}, {"shrink-idle-ms", "1h", 3600000},
        {"slot-shrink-idle-ms", "4294967294", UINT32_MAX - 1},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        kvlazy_params p = fresh();

        assert_int_equal(kvlazy_params_set(&p, rows[i].name, rows[i].value), KVLAZY_OK);
        uint64_t got = !strcmp(rows[i].name, "kv-size")          ? p.kv_size
                       : !strcmp(rows[i].name, "budget-bytes")   ? p.budget_bytes
                       : strstr(rows[i].name, "idle-ms") != NULL ? p.slot_shrink_idle_ms
                                                                 : p.kv_size_initial;
        assert_true(got == rows[i].number);
        assert_string_equal(said, "");
    }
}

static void bad_values(void **state)
{
    static const char *const names[] = {"kv-size", "slot-initial-ctx", "slot-shrink-idle-ms", "budget-bytes"};
    static const char *const values[] = {"",    "-1",  "-4k", " 4", "4 ",  "4 k", "4kb", "4x", "k", "1.5k", "0x10", "1e3", "+4",
                                         "99999999999999999999", "18446744073709551616", "17179869184g", "18446744073709551615"};

    (void)state;
    for (size_t n = 0; n < N_OF(names); n++)
        for (size_t v = 0; v < N_OF(values); v++) {
            kvlazy_params p = fresh(), before = p;

            assert_int_equal(kvlazy_params_set(&p, names[n], values[v]), KVLAZY_EINVAL);
            assert_memory_equal(&p, &before, sizeof p);
            assert_non_null(strstr(said, names[n]));
            assert_non_null(strstr(said, values[v]));
        }
    kvlazy_params p = fresh();
    assert_int_equal(kvlazy_params_set(&p, "kv-size", "2g"), KVLAZY_EINVAL); /* cells, not bytes */
    assert_int_equal(kvlazy_params_set(&p, "slot-shrink-idle-ms", "4294967295"), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_params_set(&p, "slot-shrink-idle-ms", "1200h"), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_params_set(&p, "kv-sise", "1"), KVLAZY_EINVAL);
    assert_non_null(strstr(said, "kv-sise"));
    assert_int_equal(kvlazy_params_set(&p, NULL, "1"), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_params_set(&p, "kv-size", NULL), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_params_set(NULL, "kv-size", "1"), KVLAZY_EINVAL);
}

static void environment(void **state)
{
    kvlazy_params p = fresh();

    (void)state;
    setenv("LLAMA_ARG_SLOT_INITIAL_CTX", "2k", 1);
    setenv("LLAMA_ARG_BUDGET_BYTES", "1g", 1);
    setenv("KVLAZY_SLOT_INITIAL_CTX", "4k", 1); /* ours goes first */
    assert_int_equal(kvlazy_params_from_env(&p), KVLAZY_OK);
    assert_int_equal(p.kv_size_initial, 4096);
    assert_int_equal(p.budget_bytes, UINT64_C(1) << 30);
    assert_int_equal(p.slot_shrink_idle_ms, 30000);

    kvlazy_params before = p;
    setenv("KVLAZY_SLOT_INITIAL_CTX", "8k", 1);
    setenv("KVLAZY_BUDGET_BYTES", "lots", 1); /* one bad value, and none is set */
    assert_int_equal(kvlazy_params_from_env(&p), KVLAZY_EINVAL);
    assert_memory_equal(&p, &before, sizeof p);
    assert_non_null(strstr(said, "KVLAZY_BUDGET_BYTES"));
    assert_non_null(strstr(said, "lots"));
    unsetenv("LLAMA_ARG_SLOT_INITIAL_CTX");
    unsetenv("LLAMA_ARG_BUDGET_BYTES");
    unsetenv("KVLAZY_SLOT_INITIAL_CTX");
    unsetenv("KVLAZY_BUDGET_BYTES");
    assert_int_equal(kvlazy_params_from_env(NULL), KVLAZY_EINVAL);
}

/* What create would not take, by the field that the line names. */
static void refused_fields(void **state)
{
    static const kvlazy_layer one = {.id = 0, .k_row_bytes = 64, .v_row_bytes = 64};
    static const kvlazy_layer twice[] = {{.id = 5, .k_row_bytes = 64}, {.id = 5, .k_row_bytes = 64}};
    static const kvlazy_layer uneven = {.id = 0, .v_row_bytes = 64, .v_channels = 3};
    kvlazy_params good = fresh();
    good.kv_size = 64;
    good.layers = &one;
    good.n_layer = 1;
    struct {
        kvlazy_params p;
        int status;
        const char *field;
    } rows[] = {
        {good, KVLAZY_EINVAL, "kv_size"},      {good, KVLAZY_EINVAL, "kv_size"}, {good, KVLAZY_EINVAL, "n_stream"},
        {good, KVLAZY_EINVAL, "n_pad"},        {good, KVLAZY_EINVAL, "n_seq_max"}, {good, KVLAZY_EINVAL, "shrink"},
        {good, KVLAZY_EINVAL, "flags"},        {good, KVLAZY_EINVAL, "layers"},  {good, KVLAZY_EINVAL, "layer id"},
        {good, KVLAZY_EINVAL, "layer 0"},  {good, KVLAZY_EINVAL, "n_swa"},   {good, KVLAZY_EINVAL, "n_pos_per_token"},
        {good, KVLAZY_EINVAL, "n_pos_per_token"}, {good, KVLAZY_EINVAL, "swa_type"},
    };

    (void)state;
    rows[0].p.kv_size = 0;
    rows[1].p.kv_size = UINT32_MAX;
    rows[2].p.n_stream = 2, rows[2].p.n_seq_max = 3;
    rows[3].p.n_pad = 48;
    rows[4].p.n_seq_max = 65537;
    rows[5].p.shrink = 3;
    rows[6].p.flags = 1u << 30;
    rows[7].p.layers = NULL;
    rows[8].p.layers = twice, rows[8].p.n_layer = 2;
    rows[9].p.layers = &uneven;
    rows[10].p.swa_type = KVLAZY_SWA_STANDARD;
    rows[11].p.n_pos_per_token = 2;
    rows[12].p.n_pos_per_token = 5;
    rows[13].p.swa_type = 9;
    for (size_t i = 0; i < N_OF(rows); i++) {
        kvlazy_plan_info info = {.struct_size = sizeof info};
        kvlazy_cache *cache = NULL;

        said[0] = 0;
        assert_int_equal(kvlazy_create(&rows[i].p, &cache), rows[i].status);
        assert_null(cache);
        assert_non_null(strstr(said, rows[i].field));
        assert_int_equal(kvlazy_plan(&rows[i].p, &info), rows[i].status);
    }
}

static void plan_says_what_create_takes(void **state)
{
    static const kvlazy_layer layers[] = {{.id = 0, .k_row_bytes = 512, .v_row_bytes = 36}, {.id = 1, .k_row_bytes = 34}};
    kvlazy_plan_info info = {.struct_size = sizeof info};
    kvlazy_stats_info stats = {.struct_size = sizeof stats};
    kvlazy_params p = fresh();
    kvlazy_cache *cache;

    (void)state;
    p.kv_size = 1000;
    p.kv_size_initial = 100;
    p.n_stream = p.n_seq_max = 2;
    p.layers = layers;
    p.n_layer = 2;
    assert_int_equal(kvlazy_plan(&p, &info), KVLAZY_OK);
    assert_int_equal(info.cell_bytes, 512 + 36 + 34);
    assert_int_equal(info.kv_size_initial, 100);
    assert_int_equal(info.writable_cells, 1000);
    assert_int_equal(kvlazy_create(&p, &cache), KVLAZY_OK);
    assert_non_null(strstr(said, "reserved (not committed)"));
    assert_int_equal(kvlazy_stats(cache, &stats), KVLAZY_OK);
    assert_int_equal(stats.reserved_bytes, info.reserved_bytes);
    kvlazy_destroy(cache);

    p.kv_size_initial = 5000; /* above kv_size: all of it */
    assert_int_equal(kvlazy_plan(&p, &info), KVLAZY_OK);
    assert_int_equal(info.kv_size_initial, 1000);
    p.kv_size_initial = 0;
    assert_int_equal(kvlazy_plan(&p, &info), KVLAZY_OK);
    assert_int_equal(info.kv_size_initial, 1000);
    assert_int_equal(kvlazy_plan(&p, NULL), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_plan(NULL, &info), KVLAZY_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),    cmocka_unit_test(good_values),    cmocka_unit_test(bad_values),
        cmocka_unit_test(environment), cmocka_unit_test(refused_fields), cmocka_unit_test(plan_says_what_create_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
