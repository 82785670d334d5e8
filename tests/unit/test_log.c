/* SPDX-License-Identifier: MIT */
/* log: lines are kept until told, none is cut off silently, and a sink may call back. */
#include "unit.h"

#include "base/log.h"

static char said[2048];
static int n_said;

static void listen(void *ctx, int level, const char *text)
{
    kvl_log *log = ctx;

    (void)level;
    n_said++;
    strncat(said, text, sizeof said - strlen(said) - 1);
    strncat(said, "\n", sizeof said - strlen(said) - 1);
    kvl_log_note(log, KVLAZY_LOG_INFO, "from inside");
}

static void lines_are_told_once(void **state)
{
    kvlazy_params params = {.name = "kv of a model", .log = listen};
    kvl_log log, taken;

    (void)state;
    params.log_ctx = &log;
    kvl_log_init(&log, &params);
    said[0] = 0;
    n_said = 0;
    for (int i = 0; i < KVL_LOG_LINES + 3; i++)
        kvl_log_note(&log, KVLAZY_LOG_INFO, "line %d", i);
    assert_int_equal(n_said, 0);
    kvl_log_take(&log, &taken);
    assert_int_equal(log.n_line, 0);
    kvl_log_tell(&taken);
    assert_int_equal(n_said, KVL_LOG_LINES + 1);
    assert_non_null(strstr(said, "kv of a model: line 0\n"));
    assert_non_null(strstr(said, "3 more lines"));
    kvl_log_tell(&taken);
    assert_int_equal(n_said, KVL_LOG_LINES + 1);
    assert_true(log.n_line > 0);
}

static void long_lines_end(void **state)
{
    kvlazy_params params = {.log = listen};
    char text[1000];
    kvl_log log;

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    kvl_log_init(&log, &params);
    kvl_log_note(&log, KVLAZY_LOG_WARN, "%s", text);
    assert_int_equal(strlen(log.line[0].text), KVL_LOG_LINE_BYTES - 1);
    assert_int_equal(strncmp(log.line[0].text, "kv: xxx", 7), 0);
}

static void silence_costs_nothing(void **state)
{
    kvlazy_params params = {0};
    kvl_log log;

    (void)state;
    kvl_log_init(&log, &params);
    kvl_log_note(&log, KVLAZY_LOG_ERROR, "nobody listens");
    assert_int_equal(log.n_line, 0);
}

static void bytes_for_people(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {{0, "0B"}, {4096, "4096B"}, {1879048192, "1792M"}, {UINT64_C(256) << 30, "256G"}, {UINT64_MAX, "8192P"}};
    char text[KVL_HUMAN_BYTES];

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++)
        assert_string_equal(kvl_human(text, rows[i].bytes), rows[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_told_once),
        cmocka_unit_test(long_lines_end),
        cmocka_unit_test(silence_costs_nothing),
        cmocka_unit_test(bytes_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
