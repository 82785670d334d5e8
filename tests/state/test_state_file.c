/* SPDX-License-Identifier: MIT */
/*
 * States in files: whole or not at all, with a note, of mode 0600; and the n-th system call fails, for every n and each
 * error that the manuals name.
 *
 * Linked with --wrap for the system calls of a file that is written and read.
 */
#include "state_support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- between the library and the kernel ---- */

static struct {
    bool armed, failed;
    int fail_in; /* the n-th call fails, once, */
    int error;   /* with this; 0: it moves a byte only */
} os;

static bool lose(void)
{
    if (!os.armed || --os.fail_in)
        return false;
    os.failed = true;
    errno = os.error;
    return true;
}

int __real_mkostemp(char *, int);
int __real_open(const char *, int, ...);
int __real_fallocate(int, int, off_t, off_t);
int __real_fsync(int);
int __real_close(int);
int __real_rename(const char *, const char *);
ssize_t __real_read(int, void *, size_t);
ssize_t __real_writev(int, const struct iovec *, int);
int __wrap_mkostemp(char *, int);
int __wrap_open(const char *, int, ...);
int __wrap_fallocate(int, int, off_t, off_t);
int __wrap_fsync(int);
int __wrap_close(int);
int __wrap_rename(const char *, const char *);
ssize_t __wrap_read(int, void *, size_t);
ssize_t __wrap_writev(int, const struct iovec *, int);

int __wrap_mkostemp(char *path, int flags)
{
    return lose() ? -1 : __real_mkostemp(path, flags);
}

int __wrap_open(const char *path, int flags, ...)
{
    return lose() ? -1 : __real_open(path, flags);
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes)
{
    return lose() ? -1 : __real_fallocate(fd, mode, at, bytes);
}

int __wrap_fsync(int fd)
{
    return lose() ? -1 : __real_fsync(fd);
}

/* The descriptor is gone whatever close says. */
int __wrap_close(int fd)
{
    int error = lose() ? errno : 0, answer = __real_close(fd);

    errno = error ? error : errno;
    return error ? -1 : answer;
}

int __wrap_rename(const char *from, const char *to)
{
    return lose() ? -1 : __real_rename(from, to);
}

ssize_t __wrap_read(int fd, void *data, size_t bytes)
{
    if (lose())
        return os.error ? -1 : __real_read(fd, data, 1);
    return __real_read(fd, data, bytes);
}

ssize_t __wrap_writev(int fd, const struct iovec *part, int n)
{
    struct iovec byte = part[part[0].iov_len == 0];

    byte.iov_len = 1;
    if (lose())
        return os.error ? -1 : __real_writev(fd, &byte, 1);
    return __real_writev(fd, part, n);
}

/* ---- files ---- */

static char dir[] = "/tmp/kvlazy-state-XXXXXX";

static int dir_setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int dir_teardown(void **state)
{
    (void)state;
    return rmdir(dir);
}

static const char *in_dir(const char *name)
{
    static char path[2][128];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof path[0], "%s/%s", dir, name);
    return path[turn];
}

static int n_files(void)
{
    DIR *d = opendir(dir);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void test_a_file_and_its_note(void **state)
{
    struct box *from = box_open(box_new()), *to = box_open(box_new());
    static const char note[] = "which tokens these are";
    const char *path = in_dir("slot");
    char room[64] = {0};
    size_t bytes;
    struct stat info;
    mode_t mask = umask(0);

    (void)state;
    box_turn(from, 0, 0, 9);
    for (uint32_t flags = 0; flags < 2; flags++)
        ok(kvlazy_state_save(from->cache, 0, path, note, sizeof note, flags));
    umask(mask);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(n_files(), 1);
    bytes = 5;
    expect(kvlazy_state_load(to->cache, 1, path, room, &bytes), KVLAZY_EINVAL);
    assert_int_equal(bytes, sizeof note);
    assert_int_equal(kvlazy_seq_pos_max(to->cache, 1), -1);
    bytes = sizeof room;
    ok(kvlazy_state_load(to->cache, 1, path, room, &bytes));
    assert_int_equal(bytes, sizeof note);
    assert_string_equal(room, note);
    ok(kvlazy_state_load(to->cache, 2, path, NULL, NULL)); /* the note is skipped */
    assert_true(box_sum(to, 1) == box_sum(from, 0) && box_sum(to, 2) == box_sum(from, 0));
    unlink(path);
    box_free(from);
    box_free(to);
}

static void test_files_that_are_not_there(void **state)
{
    struct box *box = box_open(box_new());

    (void)state;
    box_turn(box, 0, 0, 9);
    struct picture *before = box_look(box);
    expect(kvlazy_state_load(box->cache, 0, in_dir("none"), NULL, NULL), KVLAZY_EIO);
    assert_non_null(strstr(box->log, "open: No such file"));
    expect(kvlazy_state_save(box->cache, 0, in_dir("none/slot"), NULL, 0, 0), KVLAZY_EIO);
    expect(kvlazy_state_load(box->cache, 0, dir, NULL, NULL), KVLAZY_EIO);
    expect(kvlazy_state_save(box->cache, 0, dir, NULL, 0, 0), KVLAZY_EIO);
    expect(kvlazy_state_save(box->cache, 0, in_dir("x"), NULL, 3, 0), KVLAZY_EINVAL);
    expect(kvlazy_state_save(box->cache, 0, in_dir("x"), NULL, 0, 2), KVLAZY_EINVAL);
    expect(kvlazy_state_save(box->cache, 0, NULL, NULL, 0, 0), KVLAZY_EINVAL);
    expect(kvlazy_state_load(box->cache, 9, in_dir("x"), NULL, NULL), KVLAZY_EINVAL);
    same(box, before);
    assert_int_equal(n_files(), 0);
    assert_true(access(dir, F_OK) == 0);
    char beside[160]; /* what a rename onto a folder left is gone too */
    snprintf(beside, sizeof beside, "%s.", dir);
    box_free(box);
}

/* Cut anywhere it is no state, and neither is one with something behind it. */
static void test_files_that_end_early_or_late(void **state)
{
    struct box *box = box_small();
    const char *path = in_dir("slot");

    (void)state;
    box_turn(box, 0, 0, 2);
    ok(kvlazy_state_save(box->cache, 0, path, "note", 4, 0));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size + 1), 0);
    for (off_t n = info.st_size + 1; n >= 0; n--) {
        struct picture *before = box_look(box);

        assert_int_equal(truncate(path, n), 0);
        if (n == info.st_size) {
            FILE *file = fopen(path, "rb+"); /* whole again; not read here: it would take a sequence */
            assert_non_null(file);
            fclose(file);
            box_forget(before);
            continue;
        }
        expect(kvlazy_state_load(box->cache, 1, path, NULL, NULL), KVLAZY_ESTATE);
        same(box, before);
    }
    unlink(path);
    box_free(box);
}

/* An error leaves the old file, and nothing beside it. */
static void test_a_failed_save_leaves_the_old_file(void **state)
{
    struct box *box = box_open(box_new());
    const char *path = in_dir("slot");

    (void)state;
    box_turn(box, 0, 0, 9);
    ok(kvlazy_state_save(box->cache, 0, path, NULL, 0, 0));
    ok(kvlazy_seq_add(box->cache, 0, 5, -1, 1));
    expect(kvlazy_state_save(box->cache, 0, path, NULL, 0, 0), KVLAZY_ESHIFT);
    assert_int_equal(n_files(), 1);
    ok(kvlazy_shift_done(box->cache));
    ok(kvlazy_state_load(box->cache, 1, path, NULL, NULL));
    assert_int_equal(kvlazy_seq_pos_max(box->cache, 1), 8);
    unlink(path);
    box_free(box);
}

/* A file is a state: the caller's own reader takes it too. */
static void test_a_file_can_be_read_by_hand(void **state)
{
    struct box *box = box_open(box_new());
    const char *path = in_dir("slot");
    unsigned char chunk[4096];
    struct tape t = {0};
    size_t n;

    (void)state;
    box_turn(box, 0, 0, 9);
    ok(kvlazy_state_save(box->cache, 0, path, "note", 4, 0));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0)
        tape_write(&t, chunk, n);
    fclose(file);
    ok(tape_into(&t, box, 1));
    assert_true(box_sum(box, 1) == box_sum(box, 0));
    unlink(path);
    tape_free(&t);
    box_free(box);
}

/* ---- the n-th system call ---- */

/* What is in a file, as a number. */
static uint64_t file_sum(const char *path)
{
    uint64_t sum = 1469598103934665603u;
    FILE *file = fopen(path, "rb");

    assert_non_null(file);
    for (int c; (c = getc(file)) != EOF;)
        sum = (sum ^ (unsigned)c) * 1099511628211u;
    fclose(file);
    return sum;
}

/* Returns what the call answered when its n-th system call failed; false: it makes fewer. */
static bool under_fire(int n, int error, int (*call)(struct box *, const char *), struct box *box, int *status)
{
    const char *path = in_dir("slot");

    os.fail_in = n;
    os.error = error;
    os.failed = false;
    os.armed = true;
    *status = call(box, path);
    os.armed = false;
    return os.failed;
}

static int save_unsynced(struct box *box, const char *path)
{
    return kvlazy_state_save(box->cache, 0, path, "new", 3, 0);
}

static int save_synced(struct box *box, const char *path)
{
    return kvlazy_state_save(box->cache, 0, path, "new", 3, KVLAZY_STATE_SYNC);
}

/* The old file stays or the new one is there, whole; nothing lies beside it, and the cache is as it was. */
static void sweep_saves(struct box *box, int (*save)(struct box *, const char *), int error)
{
    const char *path = in_dir("slot");
    bool again = true;

    ok(save(box, path));
    uint64_t new_sum = file_sum(path);
    for (int n = 1, status; again; n++) {
        ok(kvlazy_state_save(box->cache, 0, path, "old", 3, 0));
        uint64_t old_sum = file_sum(path);
        struct picture *before = box_look(box);

        again = under_fire(n, error, save, box, &status);
        same(box, before);
        assert_int_equal(n_files(), 1);
        assert_true(status == KVLAZY_OK || status == KVLAZY_EIO);
        if (status == KVLAZY_OK)
            assert_true(file_sum(path) == new_sum);
        else
            assert_true(file_sum(path) == old_sum || strstr(box->log, "folder"));
        assert_true(status == KVLAZY_OK || strstr(box->log, strerror(error)));
        assert_true(again || n > 4);
    }
    unlink(path);
}

static void test_a_save_whose_nth_call_fails(void **state)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EOPNOTSUPP, EINTR};
    struct box *box = box_open(box_new());

    (void)state;
    box_turn(box, 0, 0, 9);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        sweep_saves(box, save_unsynced, errors[i]);
        sweep_saves(box, save_synced, errors[i]);
    }
    box_free(box);
}

enum { FALLOCATE = 2 }; /* the call of this number, behind mkostemp */

/* A disk that is full says so before a byte is written; a file system that cannot find room ahead is done without. */
static void test_room_ahead(void **state)
{
    struct box *box = box_open(box_new());
    const char *path = in_dir("slot");
    int status;

    (void)state;
    box_turn(box, 0, 0, 9);
    assert_true(under_fire(FALLOCATE, ENOSPC, save_unsynced, box, &status));
    assert_int_equal(status, KVLAZY_EIO);
    assert_non_null(strstr(box->log, "fallocate: No space left on device"));
    assert_int_equal(n_files(), 0);
    assert_true(under_fire(FALLOCATE, EOPNOTSUPP, save_unsynced, box, &status));
    assert_int_equal(status, KVLAZY_OK);
    assert_true(under_fire(FALLOCATE, EINTR, save_unsynced, box, &status));
    assert_int_equal(status, KVLAZY_OK);
    unlink(path);
    box_free(box);
}

/* A line of the log may end the cache that it is about, in the middle of the call. */
static kvlazy_cache *ended;

static void end_on_error(void *ctx, int level, const char *text)
{
    (void)text;
    if (level == KVLAZY_LOG_ERROR && ended) {
        kvlazy_cache *cache = ended;

        ended = NULL;
        kvlazy_destroy(cache);
        *(int *)ctx += 1;
    }
}

static void test_a_line_about_a_file_may_end_the_cache(void **state)
{
    int n_ended = 0;

    (void)state;
    for (int way = 0; way < 3; way++) {
        struct box *box = box_new();

        box->params.log = end_on_error;
        box->params.log_ctx = &n_ended;
        box_turn(box_open(box), 0, 0, 9);
        ended = box->cache;
        int status = KVLAZY_OK;
        if (way == 0)
            status = kvlazy_state_load(box->cache, 0, in_dir("none"), NULL, NULL);
        else if (way == 1)
            status = kvlazy_state_save(box->cache, 0, in_dir("none/slot"), NULL, 0, 0);
        else
            under_fire(FALLOCATE, ENOSPC, save_unsynced, box, &status); /* a line in the middle */
        assert_true(status == KVLAZY_EIO || status == KVLAZY_EINVAL);
        box->cache = NULL;
        box_free(box);
    }
    assert_int_equal(n_ended, 3);
    assert_int_equal(n_files(), 0);
}

static int load(struct box *box, const char *path)
{
    return kvlazy_state_load(box->cache, 1, path, NULL, NULL);
}

/* A call that was interrupted, or moved less than it was asked to, is made again; any other error is the call's. */
static void test_a_load_whose_nth_call_fails(void **state)
{
    static const int errors[] = {EIO, EINTR, 0};
    struct box *box = box_open(box_new());
    const char *path = in_dir("slot");

    (void)state;
    box_turn(box, 0, 0, 9);
    ok(kvlazy_state_save(box->cache, 0, path, NULL, 0, 0));
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        bool again = true;

        for (int n = 1, status; again; n++) {
            ok(kvlazy_seq_rm(box->cache, 1, -1, -1));
            struct picture *before = box_look(box);

            again = under_fire(n, errors[i], load, box, &status);
            if (status == KVLAZY_OK) {
                assert_true(box_sum(box, 1) == box_sum(box, 0));
                box_forget(before);
                continue;
            }
            assert_int_equal(status, KVLAZY_EIO);
            assert_true(errors[i] == EIO || n == 1); /* open is not made again */
            same(box, before);
        }
    }
    unlink(path);
    box_free(box);
}

/* Of a write that took less than it was given the rest is written. */
static void test_writes_that_take_a_byte(void **state)
{
    struct box *box = box_open(box_new());
    const char *path = in_dir("slot");
    bool again = true;

    (void)state;
    box_turn(box, 0, 0, 9);
    ok(save_unsynced(box, path));
    uint64_t sum = file_sum(path);
    for (int n = 3, status; again && n < 6; n++) { /* behind mkostemp and fallocate */
        again = under_fire(n, 0, save_unsynced, box, &status);
        if (n == 3)
            assert_int_equal(status, KVLAZY_OK);
        if (status == KVLAZY_OK)
            assert_true(file_sum(path) == sum);
    }
    unlink(path);
    box_free(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_and_its_note),
        cmocka_unit_test(test_files_that_are_not_there),
        cmocka_unit_test(test_files_that_end_early_or_late),
        cmocka_unit_test(test_a_line_about_a_file_may_end_the_cache),
        cmocka_unit_test(test_a_failed_save_leaves_the_old_file),
        cmocka_unit_test(test_a_file_can_be_read_by_hand),
        cmocka_unit_test(test_a_save_whose_nth_call_fails),
        cmocka_unit_test(test_room_ahead),
        cmocka_unit_test(test_a_load_whose_nth_call_fails),
        cmocka_unit_test(test_writes_that_take_a_byte),
    };

    return cmocka_run_group_tests(tests, dir_setup, dir_teardown);
}
