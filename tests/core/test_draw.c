/* SPDX-License-Identifier: MIT */
/*
 * kvlazy_draw: a stream's cells as lines of text, to the byte. What a mark stands for, where a line ends, how long it
 * may get, and that drawing changes nothing and holds no lock.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 240 };

/* What drawing adds to the log. */
static const char *drawn(struct rig *r, uint32_t stream)
{
    char *before = rig_dump(r);

    r->log_bytes = 0;
    r->log[0] = 0;
    ok(kvlazy_draw(r->cache, stream));
    unchanged(r, before);
    return r->log;
}

static void an_empty_stream_has_no_lines(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    assert_string_equal(drawn(r, 0), "");
}

static void a_few_cells(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 5));
    assert_string_equal(drawn(r, 0), "3:kv: cells 0..4: 00000\n"
                                     "3:kv:   positions: 0..4\n");
    ok(put(r, 3, 100, 1));
    ok(put(r, 1, 7, 2));
    assert_string_equal(drawn(r, 0), "3:kv: cells 0..7: 00000311\n"
                                     "3:kv:   positions: 0..4 100 7..8\n");
}

static void what_emptied_lately_and_what_is_free(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 6));
    ok(put(r, 1, 0, 3));
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_seq_rm(r->cache, 0, 2, 4));
    ok(kvlazy_seq_rm(r->cache, 1, 2, -1));
    assert_string_equal(drawn(r, 0), "3:kv: cells 0..8: 00~~0011~\n"
                                     "3:kv:   positions: 0..1 4..5 0..1\n");
    r->fake.now += 1000;
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_end_batch(r->cache)); /* what nobody needed for so long is given back, or zeroed */
    assert_string_equal(drawn(r, 0), "3:kv: cells 0..7: 00..0011\n"
                                     "3:kv:   positions: 0..1 4..5 0..1\n");
    ok(kvlazy_seq_rm(r->cache, -1, -1, -1));
    assert_null(strstr(drawn(r, 0), "positions")); /* a line without a token has none */
    assert_non_null(strchr(r->log, '~'));
}

static void shared_cells(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(cp(r, 0, 2, 0, 2));
    ok(put(r, 2, 2, 2));
    assert_string_equal(drawn(r, 0), "3:kv: cells 0..5: ++0022\n"
                                     "3:kv:   positions: 0..3 2..3\n");
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    assert_string_equal(drawn(r, 0), "3:kv: cells 0..5: 22~~22\n"
                                     "3:kv:   positions: 0..1 2..3\n");
}

static void names_of_owners(void **state)
{
    struct rig *r = *state;
    static const kvlazy_seq_id owners[] = {0, 9, 10, 35, 36, 63, 64, 99};

    r->params.n_seq_max = 100;
    rig_open(r);
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++)
        ok(put(r, owners[i], 20 * (kvlazy_pos)i, 1));
    assert_string_equal(drawn(r, 0), "3:kv: cells 0..7: 09az****\n"
                                     "3:kv:   positions: 0 20 40 60 80 100 120 140\n");
}

static void sixty_four_a_line(void **state)
{
    struct rig *r = *state;

    r->params.name = "attention";
    rig_open(r);
    ok(put(r, 0, 0, 64));
    assert_string_equal(drawn(r, 0),
                        "3:attention: cells 0..63: 0000000000000000000000000000000000000000000000000000000000000000\n"
                        "3:attention:   positions: 0..63\n");
    ok(put(r, 1, 0, 66));
    assert_string_equal(drawn(r, 0),
                        "3:attention: cells 0..63: 0000000000000000000000000000000000000000000000000000000000000000\n"
                        "3:attention:   positions: 0..63\n"
                        "3:attention: cells 64..127: 1111111111111111111111111111111111111111111111111111111111111111\n"
                        "3:attention:   positions: 0..63\n"
                        "3:attention: cells 128..129: 11\n"
                        "3:attention:   positions: 64..65\n");
}

static void each_stream_alone(void **state)
{
    struct rig *r = *state;

    r->params.n_stream = 4;
    rig_open(r);
    ok(put(r, 2, 0, 3));
    assert_string_equal(drawn(r, 0), "");
    assert_string_equal(drawn(r, 2), "3:kv: cells 0..2: 222\n"
                                     "3:kv:   positions: 0..2\n");
}

/* Every position a run of its own, all of them long: the line says that it is cut, and is no longer than others. */
static void too_many_positions(void **state)
{
    struct rig *r = *state;
    kvlazy_pos down[128];
    int n_line = 0, n_cut = 0;

    r->params.name = "a name of thirty-one characters, and more";
    rig_open(r);
    for (int i = 0; i < 128; i++)
        down[i] = 2000000127 - i;
    ok(put_list(r, 0, 128, down));
    drawn(r, 0);
    for (char *line = strtok(r->log, "\n"); line; line = strtok(NULL, "\n"), n_line++) {
        assert_true(strlen(line + 2) < LINE_MAX_BYTES); /* without the level and the colon */
        if (!strstr(line, "positions:"))
            continue;
        assert_string_equal(line + strlen(line) - 4, " ...");
        assert_non_null(
            strstr(line, n_cut++ ? "positions: 2000000063 2000000062 " : "positions: 2000000127 2000000126 "));
    }
    assert_int_equal(n_line, 4);
    assert_int_equal(n_cut, 2);
}

/* The cut is made at the last moment: with short numbers 64 runs fit. */
static void all_that_fit(void **state)
{
    struct rig *r = *state;
    kvlazy_pos down[64];

    rig_open(r);
    for (int i = 0; i < 64; i++)
        down[i] = 63 - i;
    ok(put_list(r, 0, 64, down));
    drawn(r, 0);
    assert_null(strstr(r->log, "..."));
    assert_non_null(strstr(r->log, "positions: 63 62 61 "));
    assert_non_null(strstr(r->log, " 2 1 0\n"));
}

static void without_a_sink(void **state)
{
    struct rig *r = *state;

    r->params.log = NULL;
    rig_open(r);
    ok(put(r, 0, 0, 5));
    ok(kvlazy_draw(r->cache, 0));
    expect(kvlazy_draw(r->cache, 1), KVLAZY_EINVAL);
    assert_int_equal(r->n_log, 0);
}

static void no_such_stream_and_no_cache(void **state)
{
    struct rig *r = *state;
    uint64_t foreign[64] = {0};
    int lines;

    rig_open(r);
    ok(put(r, 0, 0, 5));
    lines = r->n_log;
    expect(kvlazy_draw(r->cache, 1), KVLAZY_EINVAL);
    expect(kvlazy_draw(r->cache, UINT32_MAX), KVLAZY_EINVAL);
    expect(kvlazy_draw(NULL, 0), KVLAZY_EINVAL);
    expect(kvlazy_draw((const kvlazy_cache *)(const void *)foreign, 0), KVLAZY_EINVAL);
    assert_int_equal(r->n_log, lines);
}

static struct rig *reading;

static void reads(void *ctx, int level, const char *text)
{
    struct rig *r = reading;

    (void)ctx;
    assert_null(strchr(text, '\n'));
    if (!r)
        return;
    assert_int_equal(level, KVLAZY_LOG_DEBUG);
    r->n_log++;
    ok(kvlazy_check(r->cache, NULL));       /* no lock is held */
    ok(kvlazy_seq_rm(r->cache, 0, 10, -1)); /* and what is drawn is what was there when the call was made */
}

static void the_sink_may_call_back(void **state)
{
    struct rig *r = *state;

    reading = NULL;
    r->params.log = reads;
    rig_open(r);
    ok(put(r, 0, 0, 130));
    reading = r;
    ok(kvlazy_draw(r->cache, 0));
    assert_int_equal(r->n_log, 6);
    seq_is(r, 0, 0, 9);
    reading = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(an_empty_stream_has_no_lines),
        RIG_TEST(a_few_cells),
        RIG_TEST(what_emptied_lately_and_what_is_free),
        RIG_TEST(shared_cells),
        RIG_TEST(names_of_owners),
        RIG_TEST(sixty_four_a_line),
        RIG_TEST(each_stream_alone),
        RIG_TEST(too_many_positions),
        RIG_TEST(all_that_fit),
        RIG_TEST(without_a_sink),
        RIG_TEST(no_such_stream_and_no_cache),
        RIG_TEST(the_sink_may_call_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
