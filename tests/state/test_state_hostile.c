/* SPDX-License-Identifier: MIT */
/*
 * States that are damaged, foreign or made by an enemy: each is an error, the right one, and leaves everything as it
 * was to the bit. Every truncation, every flipped bit, every field of every section changed with its checksum mended,
 * every failing call of the caller's function, every refusing host; and the fixtures of the format.
 */
#include "state_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/format.h"

/* A box with something in it: what is read goes to sequence 2, and nothing else may change. */
static struct box *host_of(struct box *box)
{
    box_turn(box, 0, 0, 3);
    box_turn(box, 1, 0, 3);
    ok(kvlazy_seq_rm(box->cache, 0, 1, 2)); /* a hole, whose page stays */
    box_turn(box, 2, 0, 2);
    return box;
}

/* All of a small state, and which byte goes first. */
static void refuses(struct box *box, struct tape *t, kvlazy_seq_id seq, int status)
{
    struct picture *before = box_look(box);
    int got = tape_into(t, box, seq);

    if (got != status)
        print_error("%s, not %s\n", kvlazy_status_name(got), kvlazy_status_name(status));
    assert_int_equal(got, status);
    same(box, before);
}

static void test_every_truncation(void **state)
{
    struct box *box = host_of(box_small());
    struct tape t = tape_of(box, 2);
    size_t n = t.n;

    (void)state;
    for (t.n = 0; t.n < n; t.n++)
        refuses(box, &t, 2, KVLAZY_EIO);
    t.n = n;
    ok(tape_into(&t, box, 2));
    tape_free(&t);
    box_free(box);
}

/* Every byte stands under a checksum, and what is looked at before it is compared with what has to be there. */
static void flip_all(struct box *box, struct tape *t, kvlazy_seq_id seq)
{
    for (size_t i = 0; i < 8 * t->n; i++) {
        struct picture *before = box_look(box);

        t->byte[i / 8] ^= (unsigned char)(1 << i % 8);
        int got = tape_into(t, box, seq);
        t->byte[i / 8] ^= (unsigned char)(1 << i % 8);
        if (got != KVLAZY_ESTATE)
            fail_msg("bit %zu of byte %zu: %s", i % 8, i / 8, kvlazy_status_name(got));
        assert_non_null(strstr(box->log, "state_read"));
        same(box, before);
    }
}

static void test_every_bit(void **state)
{
    struct box *box = host_of(box_small());
    struct tape t = tape_of(box, 2);

    (void)state;
    flip_all(box, &t, 2);
    tape_free(&t);
    t = tape_of(box, -1);
    ok(kvlazy_clear(box->cache, true));
    flip_all(box, &t, -1);
    tape_free(&t);
    box_free(box);
}

/* Behind the checksums: each byte of what is not rows takes some values, and every checksum agrees. What is then still
 * a state may be read; what is none changes nothing. */
static void mend_all(struct box *box, struct tape *t, kvlazy_seq_id seq)
{
    static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    unsigned char *good = malloc(t->n);
    uint32_t n_read = 0, n_refused = 0;

    assert_non_null(good);
    memcpy(good, t->byte, t->n);
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < N_OF(values); k++) {
            struct picture *before = box_look(box);

            memcpy(t->byte, good, t->n);
            t->byte[i] = values[k];
            tape_mend(t->byte, t->n);
            int status = tape_into(t, box, seq);
            n_read += status == KVLAZY_OK;
            n_refused += status != KVLAZY_OK;
            if (status) {
                same(box, before);
                continue;
            }
            box_sound(box);
            if (seq < 0)
                ok(kvlazy_clear(box->cache, true));
            else
                ok(kvlazy_end_batch(box->cache));
            box_forget(before);
        }
    assert_true(n_read && n_refused);
    free(good);
}

static void test_every_field_behind_the_checksums(void **state)
{
    struct box *box = host_of(box_small());
    struct tape t = tape_of(box, 2);

    (void)state;
    mend_all(box, &t, 2);
    tape_free(&t);
    ok(kvlazy_clear(box->cache, true));
    box_turn(box, 0, 0, 4);
    ok(kvlazy_seq_cp(box->cache, 0, 1, 0, 2));
    t = tape_of(box, -1);
    ok(kvlazy_clear(box->cache, true));
    mend_all(box, &t, -1);
    tape_free(&t);
    box_free(box);
}

/* ---- foreign states ---- */

/* What is changed in the receiving box, and what the log then names. */
static void change_tag(struct box *box)
{
    box->params.model_tag = "other";
}

static void change_tag_bytes(struct box *box)
{
    box->params.model_tag_bytes = 3;
}

static void change_k(struct box *box)
{
    box->layer[1].k_row_bytes = 17;
}

static void change_layers(struct box *box)
{
    box->params.n_layer = 1;
}

static void change_id(struct box *box)
{
    box->layer[1].id = 9;
}

static void change_planes(struct box *box)
{
    box->params.n_pos_per_token = 4;
}

static void change_window(struct box *box)
{
    box->params.swa_type = KVLAZY_SWA_STANDARD;
    box->params.n_swa = 8;
}

static void test_another_model_or_geometry(void **state)
{
    static const struct {
        void (*change)(struct box *);
        const char *named;
    } cases[] = {
        {change_tag, "model_tag"},
        {change_tag_bytes, "model_tag_bytes"},
        {change_k, "bytes of a row 16, here 17"},
        {change_layers, "SHAP"},
        {change_id, "id of a layer"},
        {change_planes, "planes 1, here 3"},
        {change_window, "swa_type 0, here 1"},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct box *from = box_new(), *to = box_new();

        from->params.model_tag = to->params.model_tag = "the right one";
        from->params.model_tag_bytes = to->params.model_tag_bytes = 5;
        cases[i].change(to);
        box_turn(box_open(from), 0, 0, 5);
        struct tape t = tape_of(from, 0);
        refuses(box_open(to), &t, 0, KVLAZY_ESTATE);
        if (!strstr(to->log, cases[i].named))
            fail_msg("'%s' does not name '%s'", to->log, cases[i].named);
        tape_free(&t);
        box_free(from);
        box_free(to);
    }
}

static void test_a_tag_is_checked(void **state)
{
    struct box *box = box_new();
    static char tag[65];

    (void)state;
    box->params.model_tag_bytes = 1;
    expect(kvlazy_create(&box->params, &box->cache), KVLAZY_EINVAL);
    box->params.model_tag = tag;
    box->params.model_tag_bytes = 65;
    expect(kvlazy_create(&box->params, &box->cache), KVLAZY_EINVAL);
    assert_non_null(strstr(box->log, "model_tag_bytes = 65"));
    box->params.model_tag_bytes = 64;
    box_free(box_open(box));
}

static void test_kinds_and_byte_order(void **state)
{
    struct box *box = host_of(box_small());
    struct tape t = tape_of(box, 2), whole = tape_of(box, -1);

    (void)state;
    refuses(box, &whole, 2, KVLAZY_ESTATE);
    assert_non_null(strstr(box->log, "kind"));
    for (int i = 0; i < 4; i++) {
        unsigned char byte = t.byte[i];

        t.byte[i] = t.byte[7 - i];
        t.byte[7 - i] = byte;
    }
    refuses(box, &t, 2, KVLAZY_ESTATE);
    assert_non_null(strstr(box->log, "byte order"));
    ok(kvlazy_clear(box->cache, true));
    tape_free(&t);
    box_turn(box, 1, 0, 2);
    t = tape_of(box, 1);
    ok(kvlazy_clear(box->cache, true));
    refuses(box, &t, -1, KVLAZY_ESTATE);
    tape_free(&t);
    tape_free(&whole);
    box_free(box);
}

/* More tokens than any cell could hold: no memory is taken for them. */
static void test_lengths_are_not_trusted(void **state)
{
    struct box *box = host_of(box_small());
    struct tape t = tape_of(box, 2);
    size_t at = sizeof(kvl_state_head) + sizeof(kvl_state_frame) + 8 + sizeof(kvl_state_frame);

    (void)state;
    for (uint32_t n = 17; n; n <<= 3) {
        uint64_t n_owner = n;

        memcpy(t.byte + at + offsetof(kvl_state_shape, n_token), &n, sizeof n);
        memcpy(t.byte + at + offsetof(kvl_state_shape, n_owner), &n_owner, sizeof n_owner);
        tape_mend(t.byte, t.n);
        refuses(box, &t, 2, KVLAZY_ENOSLOT);
        assert_true(t.largest <= 1 << 20);
    }
    tape_free(&t);
    box_free(box);
}

/* ---- failing calls ---- */

static void fail_every_call(struct box *from, struct box *to, kvlazy_seq_id seq)
{
    struct tape t = tape_of(from, seq);
    int n_call = t.n_call;

    for (int n = 1; n <= n_call; n++) {
        struct tape w = {.fail_in = n};
        struct picture *before = box_look(from);

        expect(kvlazy_state_write(from->cache, seq, tape_write, &w), KVLAZY_EIO);
        same(from, before);
        tape_free(&w);
    }
    for (int n = 1;; n++) {
        t.fail_in = n;
        if (n > 1000)
            fail();
        struct picture *before = box_look(to);
        int status = tape_into(&t, to, seq);
        if (status == KVLAZY_OK) {
            t.fail_in = 0;
            box_sound(to);
            box_forget(before);
            break;
        }
        assert_int_equal(status, KVLAZY_EIO);
        same(to, before);
    }
    tape_free(&t);
}

static void test_every_failing_call_of_the_caller(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct box *from = i ? box_transpose(box_new(), 2) : box_new(), *to = i == 2 ? box_streams() : box_new();

        from->params.kv_size = to->params.kv_size = 600; /* more than one page of each */
        box_turn(box_open(from), 1, 0, 300);
        box_turn(box_open(to), 1, 0, 7);
        if (i != 2)
            box_riddle(to, 2, 5);
        fail_every_call(from, to, 1);
        ok(kvlazy_clear(to->cache, true));
        fail_every_call(from, to, -1);
        box_free(from);
        box_free(to);
    }
}

/* The n-th call to the host that can fail does. */
static void test_every_refusal_of_the_host(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct box *from = box_new(), *to = i ? box_transpose(box_new(), 2) : box_new();
        int n = 1;

        from->params.kv_size = to->params.kv_size = 2000;
        box_turn(box_open(from), 0, 0, 900);
        box_turn(box_open(to), 1, 0, 7);
        struct tape t = tape_of(from, 0);
        for (;; n++) {
            struct picture *before = box_look(to);

            to->fake.failed = false;
            fake_fail(&to->fake, FAKE_COMMIT, n);
            int status = tape_into(&t, to, 0);
            if (!to->fake.failed) {
                ok(status);
                box_forget(before);
                break;
            }
            assert_int_equal(status, KVLAZY_ENOMEM);
            same(to, before);
        }
        assert_true(n > 3);
        box_sound(to);
        assert_true(box_sum(from, 0) == box_sum(to, 0));
        tape_free(&t);
        box_free(from);
        box_free(to);
    }
}

/* Where the host refuses to take pages back, what was written reads zero all the same. */
static void test_a_host_that_takes_nothing_back(void **state)
{
    struct box *from = box_new(), *to = box_new();

    (void)state;
    from->params.kv_size = to->params.kv_size = 600;
    box_turn(box_open(from), 0, 0, 300);
    box_open(to);
    struct tape t = tape_of(from, 0);
    t.n -= 9;
    to->fake.refuse_decommit = true;
    expect(tape_into(&t, to, 0), KVLAZY_EIO);
    for (uint64_t i = 0; i < to->cache->rows.own.bytes; i++)
        assert_int_equal(to->cache->rows.own.base[i], 0);
    box_sound(to);
    to->fake.refuse_decommit = false;
    tape_free(&t);
    box_free(from);
    box_free(to);
}

/* ---- fixtures ---- */

static struct tape load(const char *name)
{
    char path[512];
    struct tape t = {0};
    unsigned char chunk[4096];
    size_t n;

    snprintf(path, sizeof path, "%s/%s", STATE_DIR, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s is not there", path);
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0)
        tape_write(&t, chunk, n);
    fclose(file);
    t.n_call = 0;
    return t;
}

/* What the fixtures were written from. */
static struct box *fixture_box(bool window)
{
    struct box *box = window ? box_window(16, 4) : box_new();

    box->params.model_tag = "fixture";
    box->params.model_tag_bytes = 7;
    if (!window)
        box->params.n_pos_per_token = 4;
    return box_open(box);
}

static struct box *fixture_filled(bool window)
{
    struct box *box = fixture_box(window);

    for (kvlazy_pos p = 0; window && p < 20; p++)
        box_turn(box, 0, p, 1);
    if (!window) {
        box_turn(box, 0, 0, 4);
        box_turn_planes(box, 0, 4, 6);
        ok(kvlazy_seq_cp(box->cache, 0, 1, 0, 3));
        box_turn(box, 3, 7, 2);
    }
    return box;
}

/* The bytes of version 1 do not change: what is written today is what was written then, and can be read. With
 * KVLAZY_WRITE_FIXTURES in the environment they are written anew, for a new version. */
static void test_fixtures(void **state)
{
    static const struct {
        const char *name;
        bool window;
        kvlazy_seq_id seq;
    } fixtures[] = {{"v1-sequence", false, 0}, {"v1-cache", false, -1}, {"v1-window", true, 0}};

    (void)state;
    for (size_t i = 0; i < N_OF(fixtures); i++) {
        struct box *from = fixture_filled(fixtures[i].window), *to = fixture_box(fixtures[i].window);
        struct tape now = tape_of(from, fixtures[i].seq);
        char path[512];

        snprintf(path, sizeof path, "%s/%s", STATE_DIR, fixtures[i].name);
        if (getenv("KVLAZY_WRITE_FIXTURES")) {
            FILE *file = fopen(path, "wb");

            assert_non_null(file);
            assert_int_equal(fwrite(now.byte, 1, now.n, file), now.n);
            fclose(file);
        }
        struct tape then = load(fixtures[i].name);
        if (then.byte[0] != now.byte[0])
            skip(); /* they were written in the other byte order */
        assert_int_equal(then.n, now.n);
        assert_memory_equal(then.byte, now.byte, now.n);
        ok(tape_into(&then, to, fixtures[i].seq));
        for (kvlazy_seq_id id = 0; id < 4; id++)
            if (fixtures[i].seq < 0 || id == 0)
                assert_true(box_sum(to, id) == box_sum(from, id));
        tape_free(&now);
        tape_free(&then);
        box_free(from);
        box_free(to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_every_bit),
        cmocka_unit_test(test_every_field_behind_the_checksums),
        cmocka_unit_test(test_another_model_or_geometry),
        cmocka_unit_test(test_a_tag_is_checked),
        cmocka_unit_test(test_kinds_and_byte_order),
        cmocka_unit_test(test_lengths_are_not_trusted),
        cmocka_unit_test(test_every_failing_call_of_the_caller),
        cmocka_unit_test(test_every_refusal_of_the_host),
        cmocka_unit_test(test_a_host_that_takes_nothing_back),
        cmocka_unit_test(test_fixtures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
