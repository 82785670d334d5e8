/* SPDX-License-Identifier: MIT */
/* What a directory of blobs takes, what goes first, and what is swept. The clock is moved by hand. */
#include "dir_support.h"
#include "fail_os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { UNIT = 8192, N = 10 };

static int space_setup(void **state)
{
    fail_os = (struct fail_os){0};
    return quick_place_setup(state);
}

static int space_teardown(void **state)
{
    fail_os = (struct fail_os){0};
    return place_teardown(state);
}

static void pass(int seconds)
{
    fail_os.passed_ms += INT64_C(1000) * seconds;
}

/* "0 1 4": which of the first 32 blobs are there. */
static const char *there(struct place *p)
{
    static char text[128];
    size_t n = 0;

    text[0] = 0;
    for (uint32_t i = 0; i < 32; i++)
        if (has_blob(&p->ops, i))
            n += (size_t)snprintf(text + n, sizeof text - n, n ? " %u" : "%u", i);
    return text;
}

static void put_range(struct place *p, uint32_t begin, uint32_t end, int apart_s)
{
    for (uint32_t i = begin; i < end; i++) {
        assert_int_equal(put_blob(&p->ops, i, UNIT), 0);
        pass(apart_s);
    }
}

static void the_least_recently_used_goes(void **state)
{
    struct place *p = *state;

    open_place(p, N * UNIT);
    put_range(p, 0, 10, 20);
    put_range(p, 10, 11, 20);
    assert_string_equal(there(p), "1 2 3 4 5 6 7 8 9 10");
    touch(&p->ops, 2, (uint32_t[]){1, 3});
    pass(20);
    put_range(p, 11, 14, 20);
    assert_string_equal(there(p), "1 3 6 7 8 9 10 11 12 13");
    close_place(p);
    open_place(p, N * UNIT); /* it is written down */
    put_range(p, 14, 18, 20);
    assert_string_equal(there(p), "1 3 10 11 12 13 14 15 16 17");
    assert_int_equal(put_blob(&p->ops, 18, 4 * UNIT - 4000), 0); /* as many as it takes */
    assert_string_equal(there(p), "12 13 14 15 16 17 18");
}

/* By touches within one look, so that the order is that of the files and not that of a list. */
static void leaves_go_before_roots(void **state)
{
    struct place *p = *state;

    open_place(p, N * UNIT);
    put_range(p, 0, 10, 0);
    touch(&p->ops, 5, (uint32_t[]){4, 3, 2, 1, 0}); /* two chains that have 0 in common */
    touch(&p->ops, 6, (uint32_t[]){9, 8, 7, 6, 5, 0});
    pass(20);
    put_range(p, 10, 13, 0);
    assert_string_equal(there(p), "0 1 5 6 7 8 9 10 11 12");
    put_range(p, 13, 19, 0);
    assert_string_equal(there(p), "0 10 11 12 13 14 15 16 17 18");
}

static void a_chain_does_not_eat_itself(void **state)
{
    struct place *p = *state;

    open_place(p, N * UNIT);
    put_range(p, 20, 25, 0);
    pass(60);
    put_range(p, 0, 10, 0);
    assert_int_equal(put_blob(&p->ops, 10, UNIT), ENOSPC);
    assert_string_equal(there(p), "0 1 2 3 4 5 6 7 8 9");
    for (int i = 0; i < 5; i++) {
        pass(60);
        touch(&p->ops, 10, (uint32_t[]){9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
        assert_int_equal(put_blob(&p->ops, 10, UNIT), ENOSPC);
        assert_string_equal(there(p), "0 1 2 3 4 5 6 7 8 9");
    }
    pass(60);
    put_range(p, 10, 11, 0);
    assert_string_equal(there(p), "0 1 2 3 4 5 6 7 8 10"); /* the leaf went */
}

static void what_never_fits_evicts_nothing(void **state)
{
    struct place *p = *state;

    open_place(p, N * UNIT);
    put_range(p, 0, 10, 20);
    assert_int_equal(put_blob(&p->ops, 10, N * UNIT + 1), ENOSPC);
    void *blob;
    assert_int_equal(p->ops.open(p->ops.ctx, blob_name(10), UINT64_MAX, &blob), ENOSPC);
    assert_string_equal(there(p), "0 1 2 3 4 5 6 7 8 9");
    put_range(p, 9, 10, 0); /* there already */
}

static void promises_count_until_they_end(void **state)
{
    struct place *p = *state;

    open_place(p, N * UNIT);
    void *blob = begin_put(&p->ops, 0, 6 * UNIT, 0);
    put_range(p, 1, 5, 0);
    assert_int_equal(put_blob(&p->ops, 5, UNIT), ENOSPC);
    assert_int_equal(p->ops.close(blob, false), 0);
    put_range(p, 5, 11, 0);
    assert_int_equal(put_blob(&p->ops, 11, UNIT), ENOSPC);
    drop(&p->ops, 3); /* known at once */
    put_range(p, 11, 12, 0);
    assert_string_equal(there(p), "1 2 4 5 6 7 8 9 10 11");
}

static void a_smaller_limit_holds_from_the_start(void **state)
{
    struct place *p = *state;

    open_place(p, N * UNIT);
    put_range(p, 0, 10, 20);
    close_place(p);
    open_place(p, 4 * UNIT);
    assert_string_equal(there(p), "6 7 8 9");
}

static void places_on_one_directory_agree(void **state)
{
    struct place *p = *state;
    struct place other = {.path = p->path};

    open_place(p, N * UNIT);
    open_place(&other, N * UNIT);
    put_range(p, 0, 5, 0);
    put_range(&other, 5, 10, 0);
    pass(11);
    put_range(p, 10, 11, 0); /* looks again: sees ten, and one of the eldest goes */
    assert_string_equal(there(p), "1 2 3 4 5 6 7 8 9 10");
    touch(&other.ops, 4, (uint32_t[]){1, 2, 3, 4});
    pass(9);
    put_range(p, 11, 12, 0); /* its list is old, the files are not */
    assert_string_equal(there(p), "1 2 3 4 6 7 8 9 10 11");
    put_range(&other, 12, 14, 0); /* looks for the first time since the beginning */
    assert_string_equal(there(p), "1 2 3 4 8 9 10 11 12 13");
    put_range(p, 14, 16, 0); /* what the other wrote since its own look is too much */
    assert_string_equal(there(p), "1 2 3 4 8 9 10 11 12 13 14 15");
    pass(11);
    put_range(p, 16, 17, 0);
    assert_string_equal(there(p), "1 2 3 4 11 12 13 14 15 16");
    close_place(&other);
}

static void the_future_counts_as_now(void **state)
{
    struct place *p = *state;

    open_place(p, N * UNIT);
    put_range(p, 0, 10, 0);
    for (uint32_t i = 0; i < 10; i++)
        set_age(blob_path(p, i), i < 2 ? -1e8 - (i ? 0 : 1) : 100 - i);
    close_place(p);
    open_place(p, N * UNIT); /* sees them */
    assert_in_range((int)age_of(blob_path(p, 0)) + 100, 99, 130);
    put_range(p, 10, 13, 0);
    assert_string_equal(there(p), "0 1 5 6 7 8 9 10 11 12");
    pass(20);
    put_range(p, 13, 18, 20);
    assert_string_equal(there(p), "0 1 10 11 12 13 14 15 16 17");
    put_range(p, 18, 19, 20); /* of the two the one further in the future was used last */
    assert_string_equal(there(p), "0 10 11 12 13 14 15 16 17 18");
}

static void ancient_times_are_times(void **state)
{
    struct place *p = *state;

    open_place(p, 2 * UNIT);
    put_range(p, 0, 2, 0);
    set_age(blob_path(p, 1), 1e11);
    close_place(p);
    pass(20);
    open_place(p, 2 * UNIT);
    put_range(p, 2, 3, 0);
    assert_string_equal(there(p), "0 2");
}

static void only_blobs_are_counted_and_evicted(void **state)
{
    static const char *const foreign[] = {"README", "3/README", ".hidden",
                                          "3/3F00000000000000000000000000000000000000000000000000000000000000", "temp"};
    struct place *p = *state;
    char path[256];

    open_place(p, N * UNIT);
    put_range(p, 0, 10, 0);
    snprintf(path, sizeof path, "%s/3", p->path);
    (void)mkdir(path, 0700);
    for (size_t i = 0; i < N_OF(foreign); i++) {
        snprintf(path, sizeof path, "%s/%s", p->path, foreign[i]);
        write_file(path, "not ours", 0600);
        set_age(path, 1e6);
    }
    pass(60);
    close_place(p);
    open_place(p, N * UNIT);
    put_range(p, 10, 12, 0);
    assert_string_equal(there(p), "2 3 4 5 6 7 8 9 10 11");
    assert_int_equal(n_files_below(p->path), N + N_OF(foreign));
}

static bool is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static void old_temporary_files_go(void **state)
{
    struct place *p = *state;
    char path[4][256];

    for (int i = 0; i < 4; i++) {
        static const double age_s[] = {3700, 3500, -1e6, 3700};

        snprintf(path[i], sizeof path[i], "%s/.tmp-%d", p->path, i);
        if (i < 3)
            write_file(path[i], "torn", 0600);
        else
            assert_int_equal(symlink("/", path[i]), 0);
        set_age(path[i], age_s[i]);
    }
    open_place(p, N * UNIT);
    assert_false(is_there(path[0]));
    assert_true(is_there(path[1]));
    assert_true(is_there(path[2]));
    assert_false(is_there(path[3])); /* the link, not what it points to */
    pass(200);
    put_range(p, 0, 1, 0);
    assert_false(is_there(path[1]));
    pass(3600);
    put_range(p, 1, 2, 0);
    assert_false(is_there(path[2]));
}

/* ---- other threads ---- */

/* A thread beside the one that is inside a call. */
struct beside {
    struct place *p;
    void (*act)(struct place *p);
    pthread_t thread;
    atomic_bool done;
    bool in_time;
};

static void *run_beside(void *arg)
{
    struct beside *b = arg;

    b->act(b->p);
    atomic_store(&b->done, true);
    return NULL;
}

/* Waits for it until it must be waiting for us. */
static void begin_beside(void *arg)
{
    struct beside *b = arg;

    assert_int_equal(pthread_create(&b->thread, NULL, run_beside, b), 0);
    for (int i = 0; i < 1000 && !atomic_load(&b->done); i++)
        usleep(1000);
    b->in_time = atomic_load(&b->done);
}

static void reads_and_drops(struct place *p)
{
    assert_int_equal(get_blob(&p->ops, 1, UNIT), 0);
    assert_true(has_blob(&p->ops, 2));
    touch(&p->ops, 2, (uint32_t[]){1, 2});
    drop(&p->ops, 3);
}

static void readers_do_not_wait_for_a_look(void **state)
{
    struct place *p = *state;
    struct beside b = {.p = p, .act = reads_and_drops};

    open_place(p, N * UNIT);
    put_range(p, 0, 8, 0);
    pass(20);
    fail_os.hook_at = "readdir";
    fail_os.hook_ctx = &b;
    fail_os.hook = begin_beside;
    put_range(p, 8, 9, 0); /* looks */
    assert_int_equal(pthread_join(b.thread, NULL), 0);
    assert_true(b.in_time);
    assert_string_equal(there(p), "0 1 2 4 5 6 7 8");
    put_range(p, 9, 11, 0); /* what was dropped during the look is known */
    assert_string_equal(there(p), "0 1 2 4 5 6 7 8 9 10");
}

static void puts_another(struct place *p)
{
    assert_int_equal(put_blob(&p->ops, 1, UNIT), 0);
}

/* A blob that has its name when another thread looks, and whose put is not over, is one blob. */
static void a_look_during_a_put_counts_it_once(void **state)
{
    struct place *p = *state;
    struct beside b = {.p = p, .act = puts_another};

    open_place(p, 3 * UNIT);
    void *blob = begin_put(&p->ops, 0, UNIT, UNIT);
    pass(20);
    fail_os.hook_at = "linked";
    fail_os.hook_ctx = &b;
    fail_os.hook = begin_beside;
    assert_int_equal(p->ops.close(blob, true), 0);
    assert_int_equal(pthread_join(b.thread, NULL), 0);
    put_range(p, 2, 3, 0);
    assert_string_equal(there(p), "0 1 2");
}

/* ---- the disk ---- */

static void some_space_stays_free(void **state)
{
    struct place *p = *state;

    open_place(p, 100 * UNIT);
    fail_os.total_bytes = 200 * UNIT; /* so 10 stay free */
    fail_os.free_bytes = 11 * UNIT;
    put_range(p, 0, 1, 0);
    fail_os.free_bytes = 11 * UNIT - 1;
    assert_int_equal(put_blob(&p->ops, 1, UNIT), ENOSPC);
    pass(20);
    fail_os.free_bytes = 9 * UNIT; /* others filled it: no more than a blob's place is made */
    assert_int_equal(put_blob(&p->ops, 1, UNIT), ENOSPC);
    assert_string_equal(there(p), "0");
    fail_os.free_bytes = 10 * UNIT;
    assert_int_equal(put_blob(&p->ops, 1, UNIT),
                     ENOSPC); /* the blob that went gave no room: another process reads it */
    assert_string_equal(there(p), "");
    fail_os.total_bytes = UINT64_C(1) << 50; /* of a large disk 1 GiB */
    fail_os.free_bytes = (UINT64_C(1) << 30) + UNIT;
    put_range(p, 1, 2, 0);
    fail_os.free_bytes--;
    assert_int_equal(put_blob(&p->ops, 2, 2 * UNIT), ENOSPC);
}

/* A small file system of its own; skips where that is not to be had. */
static void mount_small(const char *path, const char *size)
{
    if (geteuid() != 0 || mount("none", path, "tmpfs", 0, size) != 0) {
        print_message("a file system can be mounted by root only\n");
        skip();
    }
    assert_int_equal(chmod(path, 0700), 0);
}

static uint64_t free_of(const char *path)
{
    struct statvfs fs;

    assert_int_equal(statvfs(path, &fs), 0);
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* What a blob that is being written has of the disk already is no longer free, and needs no room a second time. */
static void room_that_was_taken_is_not_missing(void **state)
{
    enum { MIB = 1 << 20 };
    struct place *p = *state;

    for (int no_fallocate = 0; no_fallocate < 2; no_fallocate++) {
        mount_small(p->path, "size=16m");
        open_place(p, UINT64_C(1) << 30);
        fail_os.no_fallocate = no_fallocate;
        void *first = begin_put(&p->ops, 1, 7 * MIB, 0), *second = NULL; /* 16 are free, 0.8 stay so */
        int error = p->ops.open(p->ops.ctx, blob_name(2), 7 * MIB, &second);
        assert_int_equal(error, 0);
        void *third = NULL;
        assert_int_equal(p->ops.open(p->ops.ctx, blob_name(3), 3 * MIB, &third), ENOSPC);
        assert_int_equal(p->ops.close(first, false), 0);
        assert_int_equal(p->ops.open(p->ops.ctx, blob_name(3), 3 * MIB, &third), 0);
        assert_int_equal(p->ops.close(second, false), 0);
        assert_int_equal(p->ops.close(third, false), 0);
        assert_int_equal(put_blob(&p->ops, 4, 14 * MIB), 0); /* nothing is left promised */
        close_place(p);
        assert_int_equal(umount(p->path), 0);
    }
}

static void a_full_disk_is_a_failed_put(void **state)
{
    enum { MIB = 1 << 20 };
    struct place *p = *state;
    char path[256];
    uint32_t n = 0;

    mount_small(p->path, "size=16m");
    open_place(p, UINT64_C(1) << 30);
    while (put_blob(&p->ops, n, MIB) == 0)
        n++;
    uint64_t free_bytes = free_of(p->path);
    assert_in_range(free_bytes, 16 * MIB / 20, 16 * MIB / 20 + MIB + 8192);
    assert_int_equal(n_files_below(p->path), n);
    for (uint32_t i = 0; i < 3; i++)
        drop(&p->ops, i);

    fail_os.no_fallocate = true; /* it is full only after the blob was begun */
    void *blob = begin_put(&p->ops, 100, MIB, 0);
    snprintf(path, sizeof path, "%s/other", p->path);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(posix_fallocate(fd, 0, (off_t)free_of(p->path) - 65536), 0);
    uint8_t *data = calloc(1, MIB);
    (void)p->ops.write(blob, data, MIB, 60000); /* the disk may tell later */
    assert_int_equal(p->ops.close(blob, true), ENOSPC);
    free(data);
    close(fd);
    assert_in_range(free_of(p->path), 60000, 65536);
    assert_false(has_blob(&p->ops, 100));
    assert_int_equal(n_files_below(p->path), n - 3 + 1);
    for (uint32_t i = 3; i < n; i++)
        assert_int_equal(get_blob(&p->ops, i, MIB), 0);
    close_place(p);
    assert_int_equal(umount(p->path), 0);
}

/* ---- many ---- */

/* Seconds of a processor, which other programs on this machine do not change much. */
static double now_s(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void ten_thousand_are_soon_looked_at(void **state)
{
    enum { MANY = 10000 };
    struct place *p = *state;
    char path[256];

    for (int i = 0; i < 256; i++) {
        snprintf(path, sizeof path, "%s/%x", p->path, i >> 4);
        (void)mkdir(path, 0700);
        snprintf(path, sizeof path, "%s/%x/%x", p->path, i >> 4, i & 15);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    for (uint32_t i = 0; i < MANY; i++)
        write_file(blob_path(p, i), "x", 0600);
    double begin_s = now_s();
    open_place(p, MANY * 4096);
    double open_s = now_s() - begin_s;
    pass(20);
    begin_s = now_s();
    put_range(p, MANY, MANY + 1, 0);
    double put_s = now_s() - begin_s;
    print_message("opened in %.1f ms, looked again and put in %.1f ms\n", open_s * 1e3, put_s * 1e3);
    assert_true(open_s < 1);
    assert_true(put_s < 1);
    assert_int_equal(n_files_below(p->path), MANY - 1); /* two went */
}

int main(void)
{
#define SPACE_TEST(f) cmocka_unit_test_setup_teardown(f, space_setup, space_teardown)
    const struct CMUnitTest tests[] = {
        SPACE_TEST(the_least_recently_used_goes),
        SPACE_TEST(leaves_go_before_roots),
        SPACE_TEST(a_chain_does_not_eat_itself),
        SPACE_TEST(what_never_fits_evicts_nothing),
        SPACE_TEST(promises_count_until_they_end),
        SPACE_TEST(a_smaller_limit_holds_from_the_start),
        SPACE_TEST(places_on_one_directory_agree),
        SPACE_TEST(the_future_counts_as_now),
        SPACE_TEST(ancient_times_are_times),
        SPACE_TEST(only_blobs_are_counted_and_evicted),
        SPACE_TEST(old_temporary_files_go),
        SPACE_TEST(some_space_stays_free),
        SPACE_TEST(readers_do_not_wait_for_a_look),
        SPACE_TEST(a_look_during_a_put_counts_it_once),
        SPACE_TEST(room_that_was_taken_is_not_missing),
        SPACE_TEST(a_full_disk_is_a_failed_put),
        SPACE_TEST(ten_thousand_are_soon_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
