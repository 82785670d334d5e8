/* SPDX-License-Identifier: MIT */
/* See dir_support.h. */
#include "dir_support.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int setup(void **state, bool on_disk)
{
    struct place *p = calloc(1, sizeof *p);

    assert_non_null(p);
    p->path = make_tree(on_disk);
    p->n_open_files = n_open_files();
    *state = p;
    return 0;
}

int place_setup(void **state)
{
    return setup(state, true);
}

int quick_place_setup(void **state)
{
    return setup(state, false);
}

int place_teardown(void **state)
{
    struct place *p = *state;

    close_place(p);
    int leaked = n_open_files() - p->n_open_files;
    (void)umount2(p->path, MNT_DETACH); /* what a test that failed has mounted there */
    remove_tree(p->path);
    free(p);
    assert_int_equal(leaked, 0);
    return 0;
}

void open_place(struct place *p, uint64_t max_bytes)
{
    p->ops = (kvlazy_store_ops){.struct_size = sizeof p->ops};
    assert_int_equal(kvlazy_store_dir(p->path, max_bytes, &p->ops), 0);
    p->is_open = true;
}

void close_place(struct place *p)
{
    if (p->is_open)
        p->ops.destroy(p->ops.ctx);
    p->is_open = false;
}

const char *blob_path(const struct place *p, uint32_t i)
{
    static char path[8][256];
    static int next;
    const uint8_t *name = blob_name(i);
    char *at = path[next++ % 8];
    int n = snprintf(at, 256, "%s/%x/%x/", p->path, name[0] >> 4, name[0] & 15);

    for (int k = 0; k < 32; k++)
        n += snprintf(at + n, 256 - (size_t)n, "%02x", name[k]);
    return at;
}

void set_age(const char *path, double age_s)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    double at_s = (double)now.tv_sec - age_s;
    struct timespec t = {(time_t)floor(at_s), (long)((at_s - floor(at_s)) * 1e9)};
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){t, t}, AT_SYMLINK_NOFOLLOW), 0);
}

double age_of(const char *path)
{
    struct timespec now;
    struct stat st;

    clock_gettime(CLOCK_REALTIME, &now);
    assert_int_equal(lstat(path, &st), 0);
    return (double)(now.tv_sec - st.st_mtim.tv_sec) + (double)(now.tv_nsec - st.st_mtim.tv_nsec) / 1e9;
}

void write_file(const char *path, const char *text, int mode)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, mode);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, (mode_t)mode), 0);
    close(fd);
}

int try_place(const char *path)
{
    kvlazy_store_ops ops = {.struct_size = sizeof ops};
    int status = kvlazy_store_dir(path, UINT64_C(1) << 30, &ops);

    if (!status)
        ops.destroy(ops.ctx);
    else
        assert_null(ops.ctx);
    return status;
}

void place_refused(const char *path, int status, const char *word)
{
    char text[256] = "";

    assert_int_equal(try_place(path), status);
    assert_int_equal(kvlazy_store_dir_why(path, text, sizeof text), status);
    if (!strstr(text, word))
        fail_msg("'%s' does not say '%s'", text, word);
    assert_int_equal(kvlazy_store_dir_why(path, NULL, 0), status);
    assert_int_equal(kvlazy_store_dir_why(path, text, 4), status);
    assert_int_equal(strlen(text), 3);
}
