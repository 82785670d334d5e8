/* SPDX-License-Identifier: MIT */
/*
 * dir_name_linux: where the file of a blob lies, by its name, and what its time says. Reads and writes no file.
 */
#include "store/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------- names */

void kvl_dir_hex(char hex[KVL_HEX_BYTES], const uint8_t *name)
{
    static const char digit[] = "0123456789abcdef";

    for (int i = 0; i < KVL_NAME_BYTES; i++) {
        hex[2 * i] = digit[name[i] >> 4];
        hex[2 * i + 1] = digit[name[i] & 15];
    }
    hex[2 * KVL_NAME_BYTES] = 0;
}

int kvl_dir_below(int parent, char digit, bool make, int *below)
{
    const char name[2] = {digit, 0};
    int fd = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT && make) {
        if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST)
            return errno;
        fd = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    *below = fd;
    return fd < 0 ? errno : 0;
}

int kvl_dir_leaf(const kvl_dir *dir, const char *hex, bool make, int *leaf)
{
    int between = -1;
    int error = kvl_dir_below(dir->root, hex[0], make, &between);

    if (error)
        return error;
    error = kvl_dir_below(between, hex[1], make, leaf);
    close(between);
    return error;
}

/* The directory is closed to all other users, but a hard link or a symbolic link of ours may point out of it. */
bool kvl_dir_is_blob(const kvl_dir *dir, const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_nlink == 1 && st->st_uid == dir->uid && !(st->st_mode & 077);
}

bool kvl_dir_in_child(const kvl_dir *dir)
{
    return getpid() != dir->pid;
}

/* ------------------------------------------------------------------------------------------- clocks */

int64_t kvl_dir_stamp_now_ns(void)
{
    struct timespec t = {0};

    clock_gettime(CLOCK_REALTIME, &t); /* cannot fail */
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Times of files go beyond what fits: those are as far away as can be told. */
int64_t kvl_dir_stamp_ns(const struct stat *st)
{
    int64_t ns;

    if (__builtin_mul_overflow((int64_t)st->st_mtim.tv_sec, INT64_C(1000000000), &ns) ||
        __builtin_add_overflow(ns, (int64_t)st->st_mtim.tv_nsec, &ns))
        return st->st_mtim.tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return ns;
}

struct timespec kvl_dir_timespec(int64_t stamp_ns)
{
    return (struct timespec){stamp_ns / 1000000000, stamp_ns % 1000000000};
}
