/* SPDX-License-Identifier: MIT */
/* The directory as a place for blobs: what it takes, what it shows, and to which processes. */
#include "dir_support.h"
#include "fail_os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <kvlazy/kvlazy.h>

#define GIB (UINT64_C(1) << 30)

/* ---- the directory itself ---- */

static void arguments_are_looked_at(void **state)
{
    struct place *p = *state;
    kvlazy_store_ops ops = {.struct_size = sizeof ops};

    assert_int_equal(kvlazy_store_dir(p->path, 0, &ops), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_store_dir(p->path, GIB, NULL), KVLAZY_EINVAL);
    ops.struct_size = 0;
    assert_int_equal(kvlazy_store_dir(p->path, GIB, &ops), KVLAZY_EINVAL);
    ops.struct_size = sizeof ops - sizeof(void *);
    assert_int_equal(kvlazy_store_dir(p->path, GIB, &ops), KVLAZY_EINVAL);
    assert_null(ops.ctx);
    place_refused(NULL, KVLAZY_EINVAL, "no path");
    place_refused("", KVLAZY_EINVAL, "no path");
}

static void a_newer_caller_has_more_members(void **state)
{
    struct place *p = *state;
    struct {
        kvlazy_store_ops ops;
        void *more;
    } newer = {.ops.struct_size = sizeof newer, .more = state};

    assert_int_equal(kvlazy_store_dir(p->path, GIB, &newer.ops), KVLAZY_OK);
    assert_int_equal(newer.ops.struct_size, sizeof newer);
    newer.ops.destroy(newer.ops.ctx);
    assert_null(newer.more);
}

static void it_is_made_with_mode_0700(void **state)
{
    struct place *p = *state;
    char path[256], text[64] = "?";
    struct stat st;
    mode_t old = umask(0);

    snprintf(path, sizeof path, "%s/new", p->path);
    assert_int_equal(try_place(path), KVLAZY_OK);
    umask(old);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(kvlazy_store_dir_why(path, text, sizeof text), KVLAZY_OK);
    assert_string_equal(text, "");
    snprintf(path, sizeof path, "%s/neither/nor", p->path);
    place_refused(path, KVLAZY_EINVAL, "No such file");
}

static void others_may_not_look_in(void **state)
{
    static const int modes[] = {0755, 0750, 0701, 0770, 0777, 0500, 0600};
    struct place *p = *state;

    for (size_t i = 0; i < N_OF(modes); i++) {
        assert_int_equal(chmod(p->path, (mode_t)modes[i]), 0);
        if (getuid() == 0 || (modes[i] & 0400))
            place_refused(p->path, KVLAZY_EINVAL, "not 0700");
    }
    assert_int_equal(chmod(p->path, 02700), 0); /* what a parent hands down is no matter */
    assert_int_equal(try_place(p->path), KVLAZY_OK);
}

static void it_must_be_ours(void **state)
{
    struct place *p = *state;

    if (getuid() != 0) {
        place_refused("/", KVLAZY_EINVAL, "belongs to user 0");
        return;
    }
    assert_int_equal(chown(p->path, 1, 1), 0);
    place_refused(p->path, KVLAZY_EINVAL, "belongs to user 1, this process is user 0");
    assert_int_equal(chown(p->path, 0, 0), 0);
}

static void it_must_be_a_directory(void **state)
{
    struct place *p = *state;
    char path[256];

    snprintf(path, sizeof path, "%s/file", p->path);
    write_file(path, "text", 0700);
    place_refused(path, KVLAZY_EINVAL, "no directory");
    snprintf(path, sizeof path, "%s/link", p->path);
    assert_int_equal(symlink(".", path), 0);
    place_refused(path, KVLAZY_EINVAL, "symbolic link");
}

/* ---- blobs ---- */

static void sizes_and_steps_are_the_callers(void **state)
{
    static const size_t size[] = {1, 4095, 4096, 4097, 262143, 262144, 262145, 1000003, 3 << 20};
    static const size_t step[] = {1 << 20, 4096, 262144, 1000, 65537};
    struct place *p = *state;
    uint32_t n = 0;

    open_place(p, GIB);
    for (size_t i = 0; i < N_OF(size); i++)
        for (size_t k = 0; k < N_OF(step); k++, n++) {
            struct stat st;

            assert_int_equal(put_steps(&p->ops, n, size[i], step[k]), 0);
            assert_int_equal(lstat(blob_path(p, n), &st), 0);
            assert_int_equal(st.st_size, size[i]);
            assert_int_equal(st.st_mode, S_IFREG | 0600);
            assert_int_equal(get_steps(&p->ops, n, size[i], step[N_OF(step) - 1 - k]), 0);
        }
    assert_int_equal(n_files_below(p->path), n);
}

static void rows_are_read_in_any_order(void **state)
{
    enum { BYTES = 1000003 };
    struct place *p = *state;
    uint64_t seed = 1;
    uint8_t data[9000];
    void *blob;

    open_place(p, GIB);
    assert_int_equal(put_blob(&p->ops, 3, BYTES), 0);
    assert_int_equal(p->ops.open(p->ops.ctx, blob_name(3), 0, &blob), 0);
    for (int i = 0; i < 2000; i++) {
        uint64_t at = next_random(&seed) % BYTES;
        size_t n = next_random(&seed) % sizeof data;
        int error = p->ops.read(blob, at, data, n, 60000);

        assert_int_equal(error, at + n > BYTES ? ENODATA : 0);
        for (size_t k = 0; k < n && !error; k++)
            assert_int_equal(data[k], blob_byte(3, at + k));
    }
    assert_int_equal(p->ops.read(blob, BYTES, data, 1, 60000), ENODATA);
    assert_int_equal(p->ops.size(blob, &seed), 0);
    assert_int_equal(seed, BYTES);
    assert_int_equal(p->ops.read(blob, UINT64_MAX, data, 1, 60000), ENODATA);
    assert_int_equal(p->ops.write(blob, data, 1, 60000), EINVAL);
    assert_int_equal(p->ops.close(blob, true), EINVAL);
}

/* As many requests at once as there are pieces, from the moment a blob is opened; but for a reader that jumps only what
 * it wants. */
static void reading_in_order_reads_ahead(void **state)
{
    static const struct {
        uint64_t at;
        int n_submit;
    } rows[] = {{0, 0}, {10, 0}, {300000, 1}, {600000, 1}, {3 << 20, 1}, {1 << 20, 1}, {5, 8}};
    struct place *p = *state;
    uint8_t byte;
    void *blob;

    open_place(p, GIB);
    fail_os.n_submit = 0;
    assert_int_equal(put_blob(&p->ops, 1, 4 << 20), 0);
    if (!fail_os.n_submit)
        skip(); /* a file system without O_DIRECT, or a kernel without requests */
    assert_int_equal(fail_os.n_submit, 16);
    fail_os.n_submit = 0;
    assert_int_equal(p->ops.open(p->ops.ctx, blob_name(1), 0, &blob), 0);
    assert_int_equal(fail_os.n_submit, 8);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fail_os.n_submit = 0;
        assert_int_equal(p->ops.read(blob, rows[i].at, &byte, 1, 1000), 0);
        assert_int_equal(byte, blob_byte(1, rows[i].at));
        assert_int_equal(fail_os.n_submit, rows[i].n_submit);
    }
    assert_int_equal(p->ops.close(blob, false), 0);
}

static void a_blob_is_visible_whole_or_not_at_all(void **state)
{
    struct place *p = *state;
    uint8_t byte = 0;
    uint64_t bytes;
    void *blob;

    open_place(p, GIB);
    assert_int_equal(p->ops.open(p->ops.ctx, blob_name(1), 0, &blob), ENOENT);
    blob = begin_put(&p->ops, 1, 500000, 500000);
    assert_false(has_blob(&p->ops, 1));
    assert_int_equal(p->ops.read(blob, 0, &byte, 1, 1000), EINVAL);
    assert_int_equal(p->ops.size(blob, &bytes), EINVAL);
    assert_int_equal(p->ops.close(blob, false), 0);
    assert_false(has_blob(&p->ops, 1));

    blob = begin_put(&p->ops, 1, 500000, 499999);
    assert_int_equal(p->ops.close(blob, true), EINVAL); /* a byte is missing */
    blob = begin_put(&p->ops, 1, 500000, 500000);
    assert_int_equal(p->ops.write(blob, &byte, 1, 1000), EINVAL); /* one too many */
    assert_int_equal(p->ops.close(blob, true), EINVAL);
    assert_int_equal(n_files_below(p->path), 0);

    blob = begin_put(&p->ops, 1, 500000, 500000);
    assert_int_equal(p->ops.close(blob, true), 0);
    assert_true(has_blob(&p->ops, 1));
    assert_int_equal(get_blob(&p->ops, 1, 500000), 0);
}

static void what_is_there_stays(void **state)
{
    struct place *p = *state;
    struct stat before, after;

    open_place(p, GIB);
    assert_int_equal(put_blob(&p->ops, 1, 5000), 0);
    assert_int_equal(stat(blob_path(p, 1), &before), 0);
    assert_int_equal(put_blob(&p->ops, 1, 5000), 0);
    assert_int_equal(stat(blob_path(p, 1), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(n_files_below(p->path), 1);
    drop(&p->ops, 1);
    drop(&p->ops, 1);
    assert_false(has_blob(&p->ops, 1));
    touch(&p->ops, 1, (uint32_t[]){1});
    assert_int_equal(n_files_below(p->path), 0);
}

static void a_dropped_blob_is_read_to_its_end(void **state)
{
    struct place *p = *state;
    uint8_t data[5000];
    void *blob;

    open_place(p, GIB);
    assert_int_equal(put_blob(&p->ops, 1, 5000), 0);
    assert_int_equal(p->ops.open(p->ops.ctx, blob_name(1), 0, &blob), 0);
    drop(&p->ops, 1);
    assert_int_equal(p->ops.read(blob, 0, data, sizeof data, 1000), 0);
    assert_int_equal(data[4999], blob_byte(1, 4999));
    assert_int_equal(p->ops.close(blob, false), 0);
}

/* ---- files that are no blobs ---- */

static void a_link(const char *path, const char *other)
{
    assert_int_equal(symlink(other, path), 0);
}

static void a_second_link(const char *path, const char *other)
{
    assert_int_equal(link(other, path), 0);
}

static void a_pipe(const char *path, const char *other)
{
    (void)other;
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void a_file_for_all(const char *path, const char *other)
{
    (void)other;
    write_file(path, "text", 0644);
}

static void a_foreign_file(const char *path, const char *other)
{
    (void)other;
    write_file(path, "text", 0600);
    if (getuid() == 0)
        assert_int_equal(chown(path, 1, 1), 0);
    else
        assert_int_equal(chmod(path, 0660), 0);
}

static void what_is_no_blob_is_no_blob(void **state)
{
    static void (*const make[])(const char *, const char *) = {a_link, a_second_link, a_pipe, a_file_for_all,
                                                               a_foreign_file};
    struct place *p = *state;
    char *beside = make_tree(true), cwd[256], other[512];

    open_place(p, GIB);
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(other, sizeof other, "%s/%s/secret", cwd, beside);
    write_file(other, "secret", 0600);
    for (size_t i = 0; i < N_OF(make); i++) {
        void *blob = NULL;

        assert_int_equal(put_blob(&p->ops, 1, 5000), 0); /* so that its directory is there */
        assert_int_equal(unlink(blob_path(p, 1)), 0);
        make[i](blob_path(p, 1), other);
        assert_false(has_blob(&p->ops, 1));
        assert_int_equal(p->ops.open(p->ops.ctx, blob_name(1), 0, &blob), ENOENT);
        assert_null(blob);
        assert_int_equal(put_blob(&p->ops, 1, 5000), 0); /* takes its place */
        assert_int_equal(get_blob(&p->ops, 1, 5000), 0);
        drop(&p->ops, 1);
    }
    assert_int_equal(n_files_below(beside), 1);
    remove_tree(beside);
}

static void a_directory_in_the_way_is_left_alone(void **state)
{
    struct place *p = *state;

    open_place(p, GIB);
    assert_int_equal(put_blob(&p->ops, 1, 5000), 0);
    assert_int_equal(unlink(blob_path(p, 1)), 0);
    assert_int_equal(mkdir(blob_path(p, 1), 0700), 0);
    assert_false(has_blob(&p->ops, 1));
    assert_int_not_equal(get_blob(&p->ops, 1, 5000), 0);
    assert_int_not_equal(put_blob(&p->ops, 1, 5000), 0);
    assert_int_equal(n_files_below(p->path), 0);
}

/* A link in the place of a directory leads out: nothing is read, written or removed there. */
static void directories_are_not_links(void **state)
{
    struct place *p = *state;
    char *there = make_tree(true), path[256], target[512], cwd[256];

    open_place(p, GIB);
    assert_int_equal(put_blob(&p->ops, 1, 5000), 0);
    close_place(p);
    assert_non_null(getcwd(cwd, sizeof cwd));
    for (int level = 0; level < 2; level++) {
        snprintf(path, sizeof path, "%s/%x%s", p->path, blob_name(1)[0] >> 4, level ? "" : "/x");
        if (!level)
            path[strlen(path) - 1] = "0123456789abcdef"[blob_name(1)[0] & 15];
        snprintf(target, sizeof target, "%s/%s/moved%d", cwd, there, level);
        assert_int_equal(rename(path, target), 0);
        assert_int_equal(symlink(target, path), 0);
        open_place(p, GIB);
        assert_false(has_blob(&p->ops, 1));
        assert_int_equal(get_blob(&p->ops, 1, 5000), ENOENT);
        assert_int_not_equal(put_blob(&p->ops, 1, 5000), 0);
        drop(&p->ops, 1);
        assert_int_equal(n_files_below(there), 1 + level); /* the blob, then the link beside it */
        close_place(p);
    }
    remove_tree(there);
}

/* ---- processes and threads ---- */

static int put_many(void *arg)
{
    struct place *p = arg;
    kvlazy_store_ops ops = {.struct_size = sizeof ops};

    if (kvlazy_store_dir(p->path, GIB, &ops))
        return 1;
    for (uint32_t i = 0; i < 100; i++)
        if (put_blob(&ops, i, 50000 + i) || get_blob(&ops, i, 50000 + i))
            return 2;
    ops.destroy(ops.ctx);
    return 0;
}

static void processes_share(void **state)
{
    struct place *p = *state;
    int pid[2];

    open_place(p, GIB);
    for (int i = 0; i < 2; i++)
        pid[i] = child(put_many, p);
    while (!has_blob(&p->ops, 99))
        usleep(1000);
    for (int i = 0; i < 2; i++)
        assert_int_equal(end_of_child(pid[i]), 0);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(get_blob(&p->ops, i, 50000 + i), 0);
    assert_int_equal(n_files_below(p->path), 100);
}

static int put_for_ever(void *arg)
{
    struct place *p = arg;
    kvlazy_store_ops ops = {.struct_size = sizeof ops};

    if (kvlazy_store_dir(p->path, GIB, &ops))
        return 1;
    for (uint32_t i = 0;; i++)
        if (put_steps(&ops, i, 300000, 10000))
            return 2;
}

/* Nothing of what a killed process was writing stays, and all that is visible is whole. */
static void a_process_is_killed(void **state)
{
    struct place *p = *state;
    uint64_t seed = 7;

    open_place(p, GIB);
    for (int round = 0; round < 20; round++) {
        int pid = child(put_for_ever, p);
        uint32_t n = 0;

        while (!has_blob(&p->ops, 0))
            usleep(100);
        usleep((useconds_t)(next_random(&seed) % 10000));
        kill(pid, SIGKILL);
        assert_int_equal(end_of_child(pid), 1000 + SIGKILL);
        for (; has_blob(&p->ops, n); n++)
            assert_int_equal(get_blob(&p->ops, n, 300000), 0);
        assert_int_equal(n_files_below(p->path), n);
        for (uint32_t i = 0; i < n; i++)
            drop(&p->ops, i);
    }
}

struct fork_case {
    struct place *p;
    void *reader, *writer;
};

static int use_in_child(void *arg)
{
    struct fork_case *c = arg;
    kvlazy_store_ops *ops = &c->p->ops;
    const uint8_t(*name)[32] = (const uint8_t(*)[32])blob_name(1);
    uint8_t data[8];
    uint64_t bytes;
    void *blob;
    bool yes;

    if (ops->has(ops->ctx, name, 1, &yes) != ECHILD || ops->open(ops->ctx, *name, 0, &blob) != ECHILD ||
        ops->open(ops->ctx, *name, 100, &blob) != ECHILD || ops->touch(ops->ctx, name, 1) != ECHILD ||
        ops->drop(ops->ctx, *name) != ECHILD)
        return 1;
    if (ops->read(c->reader, 0, data, 8, 1000) != ECHILD || ops->write(c->writer, data, 8, 1000) != ECHILD)
        return 2;
    if (ops->size(c->reader, &bytes) != ECHILD || ops->close(c->reader, false) != 0 ||
        ops->close(c->writer, true) != ECHILD)
        return 3;
    ops->destroy(ops->ctx);
    return 0;
}

static void a_forked_child_may_not(void **state)
{
    struct place *p = *state;
    struct fork_case c = {.p = p};

    open_place(p, GIB);
    assert_int_equal(put_blob(&p->ops, 1, 5000), 0);
    assert_int_equal(p->ops.open(p->ops.ctx, blob_name(1), 0, &c.reader), 0);
    c.writer = begin_put(&p->ops, 2, 5000, 5000);
    assert_int_equal(end_of_child(child(use_in_child, &c)), 0);
    assert_int_equal(p->ops.close(c.reader, false), 0);
    assert_int_equal(p->ops.close(c.writer, true), 0);
    assert_int_equal(get_blob(&p->ops, 1, 5000), 0);
    assert_int_equal(get_blob(&p->ops, 2, 5000), 0);
}

struct thread_case {
    struct place *p;
    atomic_int n_wrong;
};

static void *use_in_thread(void *arg)
{
    struct thread_case *c = arg;
    kvlazy_store_ops *ops = &c->p->ops;

    for (uint32_t i = 0; i < 200; i++) {
        uint8_t name[32] = {(uint8_t)i, 1, 2}, data[3000], back[3000];
        void *blob;

        memset(data, (int)i + 1, sizeof data);
        if (ops->open(ops->ctx, name, sizeof data, &blob) || ops->write(blob, data, sizeof data, 10000) ||
            ops->close(blob, true) || ops->touch(ops->ctx, (const uint8_t(*)[32])name, 1) ||
            ops->open(ops->ctx, name, 0, &blob)) {
            c->n_wrong++;
            continue;
        }
        c->n_wrong += ops->read(blob, 0, back, sizeof back, 10000) || memcmp(data, back, sizeof data) != 0;
        c->n_wrong += ops->close(blob, false) != 0;
    }
    return NULL;
}

static void threads_share(void **state)
{
    struct thread_case c = {.p = *state};
    pthread_t thread[4];

    open_place(c.p, GIB);
    for (size_t i = 0; i < N_OF(thread); i++)
        assert_int_equal(pthread_create(&thread[i], NULL, use_in_thread, &c), 0);
    for (size_t i = 0; i < N_OF(thread); i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(c.n_wrong, 0);
    assert_int_equal(n_files_below(c.p->path), 200);
}

/* ---- the page cache ---- */

static bool can_direct(struct place *p)
{
    int fd = open(blob_path(p, 0), O_RDONLY | O_DIRECT);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void the_page_cache_stays_empty(void **state)
{
    enum { BLOBS = 8, BYTES = 4 << 20 };
    struct place *p = *state;
    struct statfs fs;
    long n = 0;

    assert_int_equal(statfs(p->path, &fs), 0);
    if (fs.f_type == 0x01021994) {
        print_message("a tmpfs has its files in the page cache\n");
        skip();
    }
    open_place(p, GIB);
    for (uint32_t i = 0; i < BLOBS; i++)
        assert_int_equal(put_blob(&p->ops, i, BYTES + 5), 0);
    for (uint32_t i = 0; i < BLOBS; i++)
        assert_int_equal(get_steps(&p->ops, i, BYTES + 5, 100000), 0);
    for (uint32_t i = 0; i < BLOBS; i++) {
        long cached = cached_pages(blob_path(p, i));

        if (cached < 0) {
            print_message("mincore does not tell of files here\n");
            skip();
        }
        n += cached;
    }
    print_message("%ld of %d pages are cached\n", n, BLOBS * (BYTES / 4096 + 1));
    assert_true(can_direct(p) == (fail_os.n_sync == 0)); /* then nothing has to be pushed out of it */
    assert_in_range(n, 0, BLOBS * BYTES / 4096 / 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(arguments_are_looked_at),
        PLACE_TEST(a_newer_caller_has_more_members),
        PLACE_TEST(it_is_made_with_mode_0700),
        PLACE_TEST(others_may_not_look_in),
        PLACE_TEST(it_must_be_ours),
        PLACE_TEST(it_must_be_a_directory),
        PLACE_TEST(sizes_and_steps_are_the_callers),
        PLACE_TEST(rows_are_read_in_any_order),
        PLACE_TEST(reading_in_order_reads_ahead),
        PLACE_TEST(a_blob_is_visible_whole_or_not_at_all),
        PLACE_TEST(what_is_there_stays),
        PLACE_TEST(a_dropped_blob_is_read_to_its_end),
        PLACE_TEST(what_is_no_blob_is_no_blob),
        PLACE_TEST(a_directory_in_the_way_is_left_alone),
        PLACE_TEST(directories_are_not_links),
        PLACE_TEST(processes_share),
        PLACE_TEST(a_process_is_killed),
        PLACE_TEST(a_forked_child_may_not),
        PLACE_TEST(threads_share),
        PLACE_TEST(the_page_cache_stays_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
