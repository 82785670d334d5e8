/* SPDX-License-Identifier: MIT */
/*
 * The figures of a cache as Prometheus text: it says what kvlazy_stats says, is read by a small reader of that format
 * whatever the name of the cache and the locale are, and may be cut at every length.
 */
#define _DEFAULT_SOURCE
#include "slow_host.h"

#include <ctype.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

/* ---- the text, read back ---- */

enum { MAX_TEXT = 1 << 16 };

static char text_of[MAX_TEXT];

static const char *text(struct rig *r)
{
    size_t needed = 0;

    memset(text_of, 'x', sizeof text_of);
    ok(kvlazy_stats_text(r->cache, text_of, sizeof text_of, &needed));
    assert_int_equal(needed, strlen(text_of) + 1);
    return text_of;
}

/* The value of a series, written exactly so; the line begins with it. */
static const char *value_of(const char *from, const char *series)
{
    static char value[64];
    size_t n = strlen(series);

    for (const char *line = from; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, series, n) && line[n] == ' ') {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
            return value;
        }
    fail_msg("no series %s in\n%s", series, from);
    return NULL;
}

static void series_is(struct rig *r, const char *series, uint64_t n)
{
    char want[32];

    snprintf(want, sizeof want, "%" PRIu64, n);
    assert_string_equal(value_of(text(r), series), want);
}

static void the_text_says_what_stats_say(void **state)
{
    struct rig *r = *state;
    kvlazy_stats_info s;

    r->params.kv_size_initial = 256;
    r->params.budget_bytes = 450 * PAGE;
    r->params.name = "main";
    open_slow(r);
    slow.commit_ns = 20000;
    slow.decommit_ns = 5000000;
    ok(turn(r, 0, 0, 400));
    expect(turn(r, 0, 400, 60), KVLAZY_EBUDGET);
    expect(turn(r, 0, 401, 1), KVLAZY_EPOS);
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    s = stats(r);
    series_is(r, "kvlazy_reserved_bytes{cache=\"main\"}", s.reserved_bytes);
    series_is(r, "kvlazy_touched_bytes{cache=\"main\"}", 256 * PAGE);
    series_is(r, "kvlazy_cap_cells{cache=\"main\"}", s.cap_cells);
    series_is(r, "kvlazy_page_bytes{cache=\"main\"}", s.page_bytes);
    series_is(r, "kvlazy_live_cells{cache=\"main\"}", 256);
    series_is(r, "kvlazy_released_bytes_total{cache=\"main\"}", 144 * PAGE);
    series_is(r, "kvlazy_grows_total{cache=\"main\"}", s.n_grow);
    series_is(r, "kvlazy_shrinks_total{cache=\"main\"}", s.n_shrink);
    series_is(r, "kvlazy_evictions_total{cache=\"main\"}", 1);
    series_is(r, "kvlazy_evicted_cells_total{cache=\"main\"}", 144);
    series_is(r, "kvlazy_moved_cells_total{cache=\"main\"}", 0);
    series_is(r, "kvlazy_host_refusals_total{cache=\"main\"}", 0);
    series_is(r, "kvlazy_refusals_total{cache=\"main\",reason=\"budget\"}", 1);
    series_is(r, "kvlazy_refusals_total{cache=\"main\",reason=\"position\"}", 1);
    series_is(r, "kvlazy_refusals_total{cache=\"main\",reason=\"slot\"}", 0);
    series_is(r, "kvlazy_refusals_total{cache=\"main\",reason=\"memory\"}", 0);
    series_is(r, "kvlazy_commit_seconds_count{cache=\"main\"}", 1);
    series_is(r, "kvlazy_commit_seconds_bucket{cache=\"main\",le=\"0.000016\"}", 0);
    series_is(r, "kvlazy_commit_seconds_bucket{cache=\"main\",le=\"0.000064\"}", 1);
    series_is(r, "kvlazy_release_seconds_bucket{cache=\"main\",le=\"+Inf\"}", 1);
    assert_string_equal(value_of(text(r), "kvlazy_commit_seconds_sum{cache=\"main\"}"), "0.000020000");
    assert_string_equal(value_of(text(r), "kvlazy_release_seconds_sum{cache=\"main\"}"), "0.005000000");
}

/* ---- the format ---- */

struct reader {
    const char *at;
    char metric[80]; /* the one that the last HELP and TYPE named */
    char type[20];
    char seen[64][80]; /* metrics so far */
    int n_seen;
    double last_le; /* of the histogram that is read */
    uint64_t last_n, inf;
    int n_bucket, n_sample;
};

static bool is_metric_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(isalpha((unsigned char)s[i]) || s[i] == '_' || s[i] == ':' || (i && isdigit((unsigned char)s[i]))))
            return false;
    return n > 0;
}

static void pass_over(struct reader *rd, const char *expected)
{
    if (strncmp(rd->at, expected, strlen(expected)) != 0)
        fail_msg("expected '%s' at '%.40s'", expected, rd->at);
    rd->at += strlen(expected);
}

static void take_word(struct reader *rd, char *out, size_t room, const char *stops)
{
    size_t n = strcspn(rd->at, stops);

    assert_true(n > 0 && n < room);
    memcpy(out, rd->at, n);
    out[n] = 0;
    rd->at += n;
}

/* # HELP and # TYPE, in this order and once a metric. */
static void read_head(struct reader *rd)
{
    char again[80];

    pass_over(rd, "# HELP ");
    take_word(rd, rd->metric, sizeof rd->metric, " \n");
    assert_true(is_metric_name(rd->metric, strlen(rd->metric)));
    for (int i = 0; i < rd->n_seen; i++)
        assert_string_not_equal(rd->seen[i], rd->metric);
    strcpy(rd->seen[rd->n_seen++], rd->metric);
    pass_over(rd, " ");
    rd->at += strcspn(rd->at, "\n");
    pass_over(rd, "\n# TYPE ");
    take_word(rd, again, sizeof again, " \n");
    assert_string_equal(again, rd->metric);
    pass_over(rd, " ");
    take_word(rd, rd->type, sizeof rd->type, " \n");
    pass_over(rd, "\n");
    assert_true(!strcmp(rd->type, "counter") || !strcmp(rd->type, "gauge") || !strcmp(rd->type, "histogram"));
    assert_int_equal(!strcmp(rd->type, "counter"), strstr(rd->metric, "_total") != NULL);
    rd->last_le = -1;
    rd->last_n = rd->inf = 0;
    rd->n_bucket = rd->n_sample = 0;
}

/* "…", unescaped. */
static void read_label_value(struct reader *rd, char *out, size_t room)
{
    size_t n = 0;

    pass_over(rd, "\"");
    for (; *rd->at != '"'; rd->at++) {
        bool escaped = *rd->at == '\\';

        rd->at += escaped;
        assert_true(*rd->at && *rd->at != '\n' && n + 1 < room);
        assert_true(!escaped || *rd->at == '\\' || *rd->at == '"' || *rd->at == 'n');
        out[n++] = escaped && *rd->at == 'n' ? '\n' : *rd->at;
    }
    out[n] = 0;
    rd->at++;
}

static void read_bucket(struct reader *rd, const char *le, uint64_t n)
{
    double bound = strcmp(le, "+Inf") ? strtod(le, NULL) : 1e300;

    assert_true(bound > rd->last_le);
    assert_true(n >= rd->last_n); /* cumulative */
    rd->last_le = bound;
    rd->last_n = n;
    rd->inf = n;
    rd->n_bucket++;
}

/* name{cache="…"[,key="…"]} value */
static void read_sample(struct reader *rd, const char *cache)
{
    char name[80], value[64], key[20], label[300], le[300] = "";
    size_t n_metric = strlen(rd->metric);

    take_word(rd, name, sizeof name, "{ \n");
    assert_memory_equal(name, rd->metric, n_metric);
    pass_over(rd, "{cache=");
    read_label_value(rd, label, sizeof label);
    assert_string_equal(label, cache);
    if (*rd->at == ',') {
        pass_over(rd, ",");
        take_word(rd, key, sizeof key, "=");
        pass_over(rd, "=");
        read_label_value(rd, le, sizeof le);
        assert_true(!strcmp(key, "le") || !strcmp(key, "reason"));
    }
    pass_over(rd, "} ");
    take_word(rd, value, sizeof value, " \n");
    assert_int_equal(strspn(value, "0123456789."), strlen(value));
    pass_over(rd, "\n");
    rd->n_sample++;
    if (strcmp(rd->type, "histogram") != 0)
        assert_int_equal(strlen(name), n_metric);
    else if (!strcmp(name + n_metric, "_bucket"))
        read_bucket(rd, le, strtoull(value, NULL, 10));
    else if (!strcmp(name + n_metric, "_count"))
        assert_int_equal(strtoull(value, NULL, 10), rd->inf);
    else
        assert_string_equal(name + n_metric, "_sum");
}

static void read_all(const char *from, const char *cache)
{
    struct reader rd = {.at = from};

    while (*rd.at) {
        if (*rd.at == '#')
            read_head(&rd);
        while (*rd.at && *rd.at != '#')
            read_sample(&rd, cache);
        if (!strcmp(rd.type, "histogram")) {
            assert_int_equal(rd.n_bucket, KVLAZY_BUCKETS);
            assert_int_equal(rd.n_sample, KVLAZY_BUCKETS + 2);
            assert_true(rd.last_le == 1e300);
        }
    }
    assert_int_equal(rd.n_seen, 19);
}

static void the_text_is_an_exposition(void **state)
{
    struct rig *r = *state;

    open_slow(r);
    read_all(text(r), "kv");
    for (uint32_t i = 0; i < 12; i++) {
        slow.commit_ns = UINT64_C(700) << 2 * i;
        ok(turn(r, 0, (kvlazy_pos)(4 * i), 4));
        ok(kvlazy_seq_rm(r->cache, 0, (kvlazy_pos)(4 * i) + 4, -1));
        ok(kvlazy_trim(r->cache, 0));
        read_all(text(r), "kv");
    }
}

static void names_are_escaped(void **state)
{
    static const char *names[] = {"a \"quoted\" name", "back\\slash\\", "two\nlines\n", "\\n", "\"", "{}=,#",
                                  "caf\xc3\xa9"};

    (void)state;
    for (size_t i = 0; i < N_OF(names); i++) {
        struct rig *r = rig_new();

        r->params.name = names[i];
        open_slow(r);
        read_all(text(r), names[i]);
        rig_free(r);
    }
}

/* A name that is cut, as in the log, and escaped all the same. */
static void a_long_name(void **state)
{
    struct rig *r = *state;
    char name[400], label[400];
    struct reader rd;

    memset(name, '"', sizeof name - 1);
    name[sizeof name - 1] = 0;
    r->params.name = name;
    open_slow(r);
    rd.at = strstr(text(r), "{cache=") + strlen("{cache=");
    read_label_value(&rd, label, sizeof label);
    assert_true(strlen(label) >= 15);
    assert_int_equal(strspn(label, "\""), strlen(label));
    read_all(text(r), label);
}

/* Many a locale writes a decimal comma. */
static void the_locale_does_not_matter(void **state)
{
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE", "fr_FR.utf8"};
    struct rig *r = *state;

    open_slow(r);
    slow.commit_ns = 1500000;
    ok(turn(r, 0, 0, 4));
    for (size_t i = 0; i < N_OF(locales); i++) {
        bool known = setlocale(LC_NUMERIC, locales[i]) != NULL;
        const char *got = text(r);

        setlocale(LC_NUMERIC, "C");
        read_all(got, "kv");
        if (known)
            assert_non_null(strstr(got, "le=\"0.000001\""));
    }
    assert_string_equal(value_of(text(r), "kvlazy_commit_seconds_sum{cache=\"kv\"}"), "0.001500000");
}

static void long_times(void **state)
{
    struct rig *r = *state;

    open_slow(r);
    slow.commit_ns = UINT64_C(1234567890123456789);
    ok(turn(r, 0, 0, 4));
    assert_string_equal(value_of(text(r), "kvlazy_commit_seconds_sum{cache=\"kv\"}"), "1234567890.123456789");
}

/* ---- cut texts ---- */

static void a_text_is_cut_anywhere(void **state)
{
    struct rig *r = *state;
    size_t full, needed;
    char *whole, *part;

    r->params.name = "a\"b";
    open_slow(r);
    ok(turn(r, 0, 0, 4));
    whole = strdup(text(r));
    full = strlen(whole) + 1;
    for (size_t n = 0; n <= full + 1; n++) {
        part = malloc(n + 1); /* as large as it may be, for the sanitizers */
        memset(part, 'x', n + 1);
        needed = 0;
        ok(kvlazy_stats_text(r->cache, part, n, &needed));
        assert_int_equal(needed, full);
        assert_int_equal(part[n], 'x');
        if (n) {
            size_t left = n < full ? n - 1 : full - 1;

            assert_int_equal(strnlen(part, n), left);
            assert_memory_equal(part, whole, left);
        }
        free(part);
    }
    free(whole);
}

static void texts_without_a_place(void **state)
{
    struct rig *r = *state;
    size_t needed = 0, again = 0;
    char one[1] = "x", all[8192];

    open_slow(r);
    ok(kvlazy_stats_text(r->cache, NULL, 0, &needed));
    assert_true(needed > 100);
    ok(kvlazy_stats_text(r->cache, NULL, 1000, &again)); /* nothing is written at NULL */
    assert_int_equal(again, needed);
    ok(kvlazy_stats_text(r->cache, one, 1, NULL));
    assert_int_equal(one[0], 0);
    ok(kvlazy_stats_text(r->cache, all, sizeof all, NULL));
    expect(kvlazy_stats_text(r->cache, NULL, 0, NULL), KVLAZY_EINVAL);
    needed = 77;
    expect(kvlazy_stats_text(NULL, all, sizeof all, &needed), KVLAZY_EINVAL);
    assert_int_equal(needed, 77);
    ok(kvlazy_stats_text(r->cache, all, 0, &needed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(the_text_says_what_stats_say), RIG_TEST(the_text_is_an_exposition),
        cmocka_unit_test(names_are_escaped),    RIG_TEST(a_long_name),
        RIG_TEST(the_locale_does_not_matter),   RIG_TEST(long_times),
        RIG_TEST(a_text_is_cut_anywhere),       RIG_TEST(texts_without_a_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
