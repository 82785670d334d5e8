/* SPDX-License-Identifier: MIT */
/* The directory of blobs over systems that fail, lack something, or are slow. */
#include "dir_support.h"
#include "fail_os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvlazy/kvlazy.h>

enum { BYTES = 270001, SMALL = 5001, N = 4, LIMIT = 3 * 270336 };

static int fault_setup(void **state)
{
    fail_os = (struct fail_os){0};
    return quick_place_setup(state);
}

static int fault_disk_setup(void **state)
{
    fail_os = (struct fail_os){0};
    return place_setup(state);
}

static int fault_teardown(void **state)
{
    fail_os = (struct fail_os){0};
    return place_teardown(state);
}

/* What a host may lack, one set a row. */
static const struct fail_os hosts[] = {
    {.error = 0},
    {.no_empty_path = true},
    {.no_empty_path = true, .no_proc = true},
    {.no_tmpfile = true},
    {.no_tmpfile = true, .no_rename = true},
    {.no_direct = true},
    {.no_fallocate = true, .no_tmpfile = true, .no_direct = true},
    {.odd_blocks = true},
    {.no_aio = true},
};

/* ---- every call fails once ---- */

/* All that a store does, and every answer is a success or an errno value. Fills a place that has old blobs. */
static void use_place(const char *path)
{
    kvlazy_store_ops ops = {.struct_size = sizeof ops};
    int status = kvlazy_store_dir(path, LIMIT, &ops);
    bool yes;

    if (status) {
        assert_true(fail_os.failed);
        assert_true(status == KVLAZY_EIO || status == KVLAZY_ENOMEM);
        return;
    }
    for (uint32_t i = 20; i < 22; i++) {
        (void)put_steps(&ops, i, BYTES, 100000);
        (void)get_steps(&ops, i, BYTES, 70000);
    }
    (void)ops.has(ops.ctx, (const uint8_t(*)[32])blob_name(20), 1, &yes);
    (void)ops.touch(ops.ctx, (const uint8_t(*)[32])blob_name(20), 1);
    (void)ops.drop(ops.ctx, blob_name(21));
    (void)put_blob(&ops, 22, BYTES);
    ops.destroy(ops.ctx);
}

/* Blobs that are old enough to go; one was used in the future, and one file is left of a crash. */
static void fill_place(struct place *p)
{
    char temp[256];

    open_place(p, LIMIT);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(put_blob(&p->ops, i, SMALL), 0);
        set_age(blob_path(p, i), i == N - 1 ? -1000 : 1000 - (double)i);
    }
    close_place(p);
    snprintf(temp, sizeof temp, "%s/.tmp-0123456789abcdef", p->path);
    write_file(temp, "torn", 0600);
    set_age(temp, 7200);
}

/* Nothing is visible that is not whole, and all the room is there once it is gone. */
static void is_sound(struct place *p)
{
    open_place(p, LIMIT);
    for (uint32_t i = 0; i < 23; i++)
        if (has_blob(&p->ops, i))
            assert_int_equal(get_blob(&p->ops, i, i < N ? SMALL : BYTES), 0);
    for (uint32_t i = 0; i < 23; i++)
        drop(&p->ops, i);
    assert_int_equal(p->ops.close(begin_put(&p->ops, 0, LIMIT, 0), false), 0);
    close_place(p);
}

/* No file is left; but what could not be looked at or removed in that moment is for the next sweep. */
static void is_clean(struct place *p, const char *call)
{
    bool may_leave = !strcmp(call, "unlinkat") || !strcmp(call, "fstatat");
    int n = n_files_below(p->path);

    if (n > may_leave)
        fail_msg("%s left %d files", call, n);
}

/* The n-th call fails, for all n. Answers how many calls there are. */
static int fail_each(struct place *p, const struct fail_os *host, int error)
{
    for (int n = 1;; n++) {
        fail_os = (struct fail_os){.no_aio = true}; /* which takes its time to end */
        fill_place(p);
        int n_open = n_open_files();

        fail_os = *host;
        fail_os.fail_in = n;
        fail_os.error = error;
        fail_os.armed = true;
        use_place(p->path);
        struct fail_os was = fail_os;
        fail_os = (struct fail_os){.no_aio = true};
        assert_int_equal(n_open_files(), n_open);
        is_sound(p);
        is_clean(p, was.call ? was.call : "no call");
        remove_tree(p->path);
        p->path = make_tree(false);
        if (!was.failed)
            return n - 1;
    }
}

/* Every host with one error, and the last one, which waits for no other thread of the kernel, with all of them. So in a
 * release build; others have a part of it: nothing here depends on KVLAZY_CHECKS, and with a sanitizer each host takes
 * three times as long. */
enum { HOST_STEP = KVLAZY_CHECKS >= 2 ? 8 : KVLAZY_CHECKS ? 2 : 1, ALL_ERRORS = !KVLAZY_CHECKS };

static void every_call_fails_once(void **state)
{
    static const int errors[] = {EIO, ENOSPC, EINTR, EINVAL, ENOENT};

    for (size_t h = 0; h < N_OF(hosts); h += HOST_STEP)
        for (size_t e = 0; e < (ALL_ERRORS && h == N_OF(hosts) - 1 ? N_OF(errors) : 1); e++) {
            struct fail_os host = hosts[h];

            host.no_aio |= h > 0;
            int n = fail_each(*state, &host, errors[e]);

            print_message("host %zu, %s: %d calls\n", h, strerror(errors[e]), n);
            assert_in_range(n, 100, 2000);
        }
}

/* ---- hosts that lack something ---- */

static void other_file_systems_do(void **state)
{
    struct place *p = *state;

    for (size_t h = 0; h < N_OF(hosts); h++) {
        fail_os = hosts[h];
        open_place(p, LIMIT);
        bool learns = fail_os.no_proc; /* by the first put, which fails */
        assert_int_equal(put_blob(&p->ops, 1, BYTES), learns ? ENOENT : 0);
        assert_int_equal(put_blob(&p->ops, 1, BYTES), 0);
        assert_int_equal(put_blob(&p->ops, 1, BYTES), 0);
        assert_int_equal(put_steps(&p->ops, 2, BYTES, 4096), 0);
        assert_int_equal(get_steps(&p->ops, 1, BYTES, 5000), 0);
        assert_int_equal(get_steps(&p->ops, 2, BYTES, 8192), 0);
        void *blob = begin_put(&p->ops, 3, BYTES, 1000);
        assert_int_equal(n_files_below(p->path), fail_os.no_tmpfile || learns ? 3 : 2);
        assert_int_equal(p->ops.close(blob, false), 0);
        assert_int_equal(n_files_below(p->path), 2);
        drop(&p->ops, 1);
        drop(&p->ops, 2);
        close_place(p);
    }
}

static void the_page_cache_empties_without_direct(void **state)
{
    struct place *p = *state;
    enum { MIB = 8 };

    for (int odd = 0; odd < 2; odd++) {
        fail_os = (struct fail_os){.no_direct = !odd, .odd_blocks = odd};
        open_place(p, (UINT64_C(1) << 30));
        assert_int_equal(put_blob(&p->ops, 1, MIB << 20), 0);
        assert_true(fail_os.n_sync >= MIB);
        long after_put = cached_pages(blob_path(p, 1));
        assert_int_equal(get_steps(&p->ops, 1, MIB << 20, 10000), 0);
        long after_get = cached_pages(blob_path(p, 1));
        print_message("%ld pages are cached after a put, %ld after a get\n", after_put, after_get);
        assert_in_range(after_put + 1, 0, MIB * 256 / 20);
        assert_in_range(after_get + 1, 0, MIB * 256 / 20);
        drop(&p->ops, 1);
        close_place(p);
    }
}

static void network_file_systems_are_refused(void **state)
{
    static const long types[] = {0x6969, 0x517b, (long)0xff534d42, (long)0xfe534d42, 0xc36400, 0x5346414f};
    struct place *p = *state;
    kvlazy_store_ops ops = {.struct_size = sizeof ops};
    char text[200];

    for (size_t i = 0; i < N_OF(types); i++) {
        fail_os.fs_type = types[i];
        assert_int_equal(kvlazy_store_dir(p->path, LIMIT, &ops), KVLAZY_ENOTSUP);
        assert_int_equal(kvlazy_store_dir_why(p->path, text, sizeof text), KVLAZY_ENOTSUP);
        assert_non_null(strstr(text, "network"));
        fail_os.fs_type = (int)types[i]; /* as systems with a signed field say it */
        assert_int_equal(kvlazy_store_dir(p->path, LIMIT, &ops), KVLAZY_ENOTSUP);
    }
}

/* ---- time ---- */

static void a_call_has_its_time(void **state)
{
    static const struct {
        uint32_t ms_a_piece, max_ms;
        int error, took_ms;
    } rows[] = {
        {0, 1000, 0, 0},          {30, 1000, 0, 120},           /* a MiB is four pieces */
        {30, 50, ETIMEDOUT, 60},  {200, 10000, ETIMEDOUT, 200}, /* no progress */
        {199, 10000, 0, 4 * 199}, {0, 0, ETIMEDOUT, 0},
    };
    enum { MIB = 1 << 20 };
    struct place *p = *state;
    uint8_t *data = calloc(1, MIB);

    assert_non_null(data);
    fail_os.no_aio = true; /* each piece is waited for where it is asked for */
    open_place(p, UINT64_C(1) << 30);
    assert_int_equal(put_blob(&p->ops, 1, MIB), 0);
    for (size_t i = 0; i < 2 * N_OF(rows); i++) {
        bool is_put = i % 2;
        int64_t begin_ms = fail_os.passed_ms;
        void *blob;

        assert_int_equal(p->ops.open(p->ops.ctx, blob_name(1 + is_put), is_put ? MIB : 0, &blob), 0);
        fail_os.ms_a_piece = rows[i / 2].ms_a_piece;
        int error = is_put ? p->ops.write(blob, data, MIB, rows[i / 2].max_ms)
                           : p->ops.read(blob, 0, data, MIB, rows[i / 2].max_ms);
        assert_int_equal(error, rows[i / 2].error);
        assert_int_equal(fail_os.passed_ms - begin_ms, rows[i / 2].took_ms);
        fail_os.ms_a_piece = 0;
        assert_int_equal(p->ops.close(blob, is_put), is_put ? error : 0); /* after an error it cannot be committed */
        assert_true(has_blob(&p->ops, 2) == (is_put && !error));
        drop(&p->ops, 2);
    }
    free(data);
}

/* The disk takes requests and does not come back: each call is over in time, memory that the disk still has is kept,
 * and not without end. */
static void a_disk_that_hangs(void **state)
{
    struct place *p = *state;
    uint8_t *data = calloc(1, 3 << 20);
    void *blob;

    assert_non_null(data);
    open_place(p, UINT64_C(1) << 30);
    assert_int_equal(put_blob(&p->ops, 1, 1 << 20), 0);
    int n_refused = 0;
    for (int i = 0; i < 12; i++) {
        fail_os.hangs = true;
        int64_t begin_ms = fail_os.passed_ms;
        int error = p->ops.open(p->ops.ctx, blob_name(1), 0, &blob);
        if (error) {
            assert_int_equal(error, EAGAIN);
            n_refused++;
            continue;
        }
        uint32_t max_ms = i % 2 ? 50 : 10000;
        assert_int_equal(p->ops.read(blob, 0, data, 1 << 20, max_ms), ETIMEDOUT);
        assert_in_range(fail_os.passed_ms - begin_ms, max_ms < 200 ? max_ms : 200, max_ms < 200 ? max_ms : 200);
        assert_int_equal(p->ops.close(blob, false), 0);
    }
    assert_in_range(n_refused, 1, 11);
    fail_os.hangs = false;
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(get_blob(&p->ops, 1, 1 << 20), 0);

    assert_int_equal(p->ops.open(p->ops.ctx, blob_name(2), 3 << 20, &blob), 0);
    fail_os.hangs = true;
    assert_int_equal(p->ops.write(blob, data, 2 << 20, 50), 0); /* the disk has all of it */
    assert_int_equal(p->ops.write(blob, data, 1 << 20, 50), ETIMEDOUT);
    assert_int_equal(p->ops.close(blob, true), ETIMEDOUT);
    fail_os.hangs = false;
    assert_false(has_blob(&p->ops, 2));
    free(data);
}

/* Blobs that were opened and never read, while the disk hangs: the memory that it had goes once it gives it back. */
static void memory_of_a_disk_that_hung_is_given_back(void **state)
{
    struct place *p = *state;
    void *blob;

    open_place(p, UINT64_C(1) << 30);
    assert_int_equal(put_blob(&p->ops, 1, 1 << 20), 0);
    fail_os.hangs = true;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(p->ops.open(p->ops.ctx, blob_name(1), 0, &blob), 0);
        assert_int_equal(p->ops.close(blob, false), 0);
    }
    assert_int_equal(fail_os.n_lane, 8);
    assert_int_equal(p->ops.open(p->ops.ctx, blob_name(1), 0, &blob), EAGAIN);
    fail_os.hangs = false;
    assert_int_equal(get_blob(&p->ops, 1, 1 << 20), 0);
    assert_int_equal(fail_os.n_lane, 4);
    close_place(p);
    assert_int_equal(fail_os.n_lane, 0);
}

/* What comes back from the kernel is less than was asked for, or an error: made again in place, which tells. */
static void requests_come_back_incomplete(void **state)
{
    static const int answers[] = {4096, 100, -EINVAL, -EIO, -EAGAIN};
    struct place *p = *state;

    open_place(p, UINT64_C(1) << 30);
    for (size_t i = 0; i < N_OF(answers); i++) {
        fail_os.bad_answer = answers[i];
        assert_int_equal(put_blob(&p->ops, 1, BYTES * 5), 0);
        assert_int_equal(fail_os.bad_answer, 0);
        fail_os.bad_answer = answers[i];
        assert_int_equal(get_blob(&p->ops, 1, BYTES * 5), 0);
        assert_int_equal(fail_os.bad_answer, 0);
        assert_int_equal(get_blob(&p->ops, 1, BYTES * 5), 0);
        drop(&p->ops, 1);
    }
}

int main(void)
{
#define FAULT_TEST(f) cmocka_unit_test_setup_teardown(f, fault_setup, fault_teardown)
    const struct CMUnitTest tests[] = {
        FAULT_TEST(every_call_fails_once),
        FAULT_TEST(other_file_systems_do),
        cmocka_unit_test_setup_teardown(the_page_cache_empties_without_direct, fault_disk_setup, fault_teardown),
        FAULT_TEST(network_file_systems_are_refused),
        FAULT_TEST(a_call_has_its_time),
        FAULT_TEST(a_disk_that_hangs),
        FAULT_TEST(memory_of_a_disk_that_hung_is_given_back),
        FAULT_TEST(requests_come_back_incomplete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
