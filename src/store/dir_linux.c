/* SPDX-License-Identifier: MIT */
/*
 * dir_linux: opens a directory as a place for blobs, and answers what is asked by name: has, touch, drop. Looks at
 * names and at times of files, never at their bytes.
 */
#include "store/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------- by name */

/* Calls `act` with the directory and the file name of each blob, until one fails. What is not there is skipped. */
static int for_each_name(kvl_dir *dir, const uint8_t (*name)[32], uint32_t n,
                         int (*act)(void *arg, uint32_t i, int leaf, const char *hex), void *arg)
{
    int error = kvl_dir_in_child(dir) ? ECHILD : 0;

    for (uint32_t i = 0; i < n && !error; i++) {
        char hex[KVL_HEX_BYTES];
        int leaf;

        kvl_dir_hex(hex, name[i]);
        error = kvl_dir_leaf(dir, hex, false, &leaf);
        if (!error) {
            error = act(arg, i, leaf, hex);
            close(leaf);
        }
        if (error == ENOENT || error == ENOTDIR || error == ELOOP)
            error = 0; /* not there, or something else in its place */
    }
    return error;
}

typedef struct asking {
    const kvl_dir *dir;
    bool *yes;
} asking;

static int note_one(void *arg, uint32_t i, int leaf, const char *hex)
{
    const asking *a = arg;
    struct stat st;

    if (fstatat(leaf, hex, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    a->yes[i] = kvl_dir_is_blob(a->dir, &st);
    return 0;
}

static int dir_has(void *ctx, const uint8_t (*name)[32], uint32_t n, bool *yes)
{
    memset(yes, 0, n * sizeof *yes);
    return for_each_name(ctx, name, n, note_one, &(asking){ctx, yes});
}

typedef struct touching {
    int64_t now_ns;
    uint32_t n;
} touching;

/* A nanosecond apart, in the order given, and none in the future. */
static int touch_one(void *arg, uint32_t i, int leaf, const char *hex)
{
    const touching *t = arg;
    struct timespec used = kvl_dir_timespec(t->now_ns - (t->n - 1 - i));

    return utimensat(leaf, hex, (struct timespec[]){used, used}, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
}

static int dir_touch(void *ctx, const uint8_t (*name)[32], uint32_t n)
{
    touching t = {kvl_dir_stamp_now_ns(), n};

    return for_each_name(ctx, name, n, touch_one, &t);
}

static int drop_one(void *arg, uint32_t i, int leaf, const char *hex)
{
    kvl_dir *dir = arg;

    (void)i;
    if (unlinkat(leaf, hex, 0) != 0)
        return errno;
    atomic_store(&dir->look_due, true);
    return 0;
}

static int dir_drop(void *ctx, const uint8_t *name)
{
    return for_each_name(ctx, (const uint8_t(*)[32])name, 1, drop_one, ctx);
}

/* ------------------------------------------------------------------------------------------- open */

/* Where the words go that say why a path is no place for blobs. */
typedef struct refusal {
    char *text;
    size_t text_bytes;
} refusal;

__attribute__((format(printf, 3, 4))) static int refuse(const refusal *why, int status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (why->text_bytes)
        vsnprintf(why->text, why->text_bytes, format, args);
    va_end(args);
    return status;
}

static bool is_of_a_network(long type)
{
    static const uint32_t magic[] = {
        0x6969,     /* NFS */
        0x517b,     /* SMB */
        0xff534d42, /* CIFS */
        0xfe534d42, /* SMB2 */
        0x00c36400, /* Ceph */
        0x5346414f, /* AFS */
        0x6b414653, /* kAFS */
    };

    for (size_t i = 0; i < sizeof magic / sizeof *magic; i++)
        if ((uint32_t)type == magic[i])
            return true;
    return false;
}

/* What fits a place, and nothing that others could have prepared or may change. */
static int check_root(const char *path, int fd, const refusal *why)
{
    struct statfs fs;
    struct stat st;

    if (fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0)
        return refuse(why, KVLAZY_EIO, "%s: %s", path, strerror(errno));
    if (st.st_uid != geteuid())
        return refuse(why, KVLAZY_EINVAL, "%s belongs to user %u, this process is user %u", path, (unsigned)st.st_uid,
                      (unsigned)geteuid());
    if ((st.st_mode & 0777) != 0700)
        return refuse(why, KVLAZY_EINVAL, "%s has mode %04o, not 0700", path, (unsigned)st.st_mode & 0777);
    if (is_of_a_network((long)fs.f_type))
        return refuse(why, KVLAZY_ENOTSUP, "%s is on a network: its server could hold up every call", path);
    return refuse(why, KVLAZY_OK, "%s", "");
}

static int open_root(const char *path, const refusal *why, int *root)
{
    static const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

    if (!path || !*path)
        return refuse(why, KVLAZY_EINVAL, "no path");
    int fd = open(path, flags);
    if (fd < 0 && errno == ENOENT && (mkdir(path, 0700) == 0 || errno == EEXIST))
        fd = open(path, flags);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return refuse(why, KVLAZY_EINVAL, "%s is no directory; a symbolic link is not followed", path);
    if (fd < 0)
        return refuse(why, errno == ENOENT ? KVLAZY_EINVAL : KVLAZY_EIO, "%s: %s", path, strerror(errno));
    int status = check_root(path, fd, why);
    if (status)
        close(fd);
    else
        *root = fd;
    return status;
}

static int status_of(int error)
{
    if (!error)
        return KVLAZY_OK;
    return error == ENOMEM ? KVLAZY_ENOMEM : KVLAZY_EIO;
}

/* Holds no lock: no other thread is inside a call, and in a forked child none ever lets go of it. */
static void dir_destroy(void *ctx)
{
    kvl_dir *dir = ctx;
    bool in_child = kvl_dir_in_child(dir);

    if (!in_child) {
        pthread_mutex_destroy(&dir->lock);
        pthread_mutex_destroy(&dir->lane_lock);
    }
    close(dir->root);
    while (dir->spare) {
        kvl_lane *lane = dir->spare;

        dir->spare = lane->next;
        kvl_lane_free(lane, in_child);
    }
    free(dir->space.file);
    free(dir);
}

/* Owns `root` from here on. */
static int new_dir(int root, uint64_t max_bytes, kvl_dir **made)
{
    kvl_dir *dir = calloc(1, sizeof *dir);
    int error = dir ? pthread_mutex_init(&dir->lane_lock, NULL) : ENOMEM;

    if (!error && (error = pthread_mutex_init(&dir->lock, NULL)) != 0)
        pthread_mutex_destroy(&dir->lane_lock);
    if (error) {
        free(dir);
        close(root);
        return status_of(error);
    }
    dir->root = root;
    dir->pid = getpid();
    dir->uid = geteuid();
    dir->space.max_bytes = kvl_min(max_bytes, INT64_MAX / 4); /* so that no sum overflows */
    error = kvl_dir_look(dir);
    if (error) {
        dir_destroy(dir);
        return status_of(error);
    }
    (void)kvl_dir_promise(dir, 0); /* the limit may be lower than it was; what cannot go now, the next put will tell */
    *made = dir;
    return KVLAZY_OK;
}

int kvlazy_store_dir(const char *path, uint64_t max_bytes, kvlazy_store_ops *ops)
{
    kvl_dir *dir;
    int root;

    if (!kvl_ops_can_be_filled(ops) || !max_bytes)
        return KVLAZY_EINVAL;
    int status = open_root(path, &(refusal){0}, &root);
    if (!status)
        status = new_dir(root, max_bytes, &dir);
    if (status)
        return status;
    kvlazy_store_ops table = {
        .ctx = dir,
        .has = dir_has,
        .open = kvl_dir_open,
        .read = kvl_dir_read,
        .write = kvl_dir_write,
        .close = kvl_dir_close,
        .touch = dir_touch,
        .drop = dir_drop,
        .destroy = dir_destroy,
        .size = kvl_dir_size,
    };
    kvl_struct_fill(ops, &table, sizeof table);
    return KVLAZY_OK;
}

int kvlazy_store_dir_why(const char *path, char *text, size_t text_bytes)
{
    const refusal why = {text, text ? text_bytes : 0};
    int root;

    int status = open_root(path, &why, &root);
    if (!status)
        close(root);
    return status;
}
