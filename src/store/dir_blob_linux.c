/* SPDX-License-Identifier: MIT */
/*
 * dir_blob_linux: one file of a directory of blobs is opened, and closed; what was written whole is given its name
 * then. Room for it is promised before and settled with its name, by dir_space, which alone knows what is held.
 */
#include "host/file.h"
#include "store/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <bsd/stdlib.h>

enum {
    NAME_TRIES = 4, /* random names that are taken already */
    LINK_TRIES = 2, /* what stands in the place of a blob and is none goes, once */
    STAT_BLOCK_BYTES = 512,
};

/* ------------------------------------------------------------------------------------------- open */

static int open_named(kvl_dir_blob *b)
{
    int fd = -1;

    for (int i = 0; i < NAME_TRIES && fd < 0; i++) {
        snprintf(b->temp, sizeof b->temp, KVL_TEMP_PREFIX "%08x%08x", arc4random(), arc4random());
        fd = openat(b->dir->root, b->temp, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        b->temp[0] = 0; /* not ours to remove */
    return fd;
}

/* Without a name where that can be had: then a crash leaves nothing. */
static int open_put(kvl_dir_blob *b)
{
    bool use_names = atomic_load(&b->dir->use_names);
    struct stat st;

    if (!use_names)
        b->fd = openat(b->dir->root, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (b->fd < 0 && (use_names || errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        b->fd = open_named(b);
    int error = b->fd < 0 ? errno : kvl_reserve_room(b->fd, b->bytes);
    if (!error)
        b->is_reserved = fstat(b->fd, &st) == 0 && (uint64_t)st.st_blocks * STAT_BLOCK_BYTES >= b->bytes;
    return error;
}

static int open_get(kvl_dir_blob *b)
{
    char hex[KVL_HEX_BYTES];
    struct stat st;
    int leaf;

    kvl_dir_hex(hex, b->name);
    int error = kvl_dir_leaf(b->dir, hex, false, &leaf);
    if (error)
        return error == ENOTDIR || error == ELOOP ? ENOENT : error;
    b->fd = openat(leaf, hex, O_RDONLY | O_NOATIME | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    error = b->fd < 0 ? errno : 0;
    close(leaf);
    if (!error && fstat(b->fd, &st) != 0)
        error = errno;
    if (error == ELOOP || error == EPERM || error == ENXIO || (!error && !kvl_dir_is_blob(b->dir, &st)))
        error = ENOENT; /* a link, a file of another user, a socket */
    if (!error)
        b->bytes = (uint64_t)st.st_size;
    return error;
}

/* ------------------------------------------------------------------------------------------- lanes */

/* Idle lanes past those that are kept leave the list: while a disk hung there were more. The caller holds the lock. */
static kvl_lane *surplus_of(kvl_dir *dir)
{
    kvl_lane *surplus = NULL, **at = &dir->spare;

    while (*at && dir->n_spare > KVL_SPARE_LANES) {
        kvl_lane *lane = *at;

        if (!kvl_lane_is_idle(lane)) {
            at = &lane->next;
            continue;
        }
        *at = lane->next;
        dir->n_spare--;
        lane->next = surplus;
        surplus = lane;
    }
    return surplus;
}

/* The kernel takes its time to end a lane, so no lock is held. */
static void free_all(kvl_lane *lane)
{
    while (lane) {
        kvl_lane *next = lane->next;

        kvl_lane_free(lane, false);
        lane = next;
    }
}

/* One that the disk has given back, or a new one. ENOMEM, or EAGAIN: a disk that hangs holds back too many. */
static int take_lane(kvl_dir *dir, kvl_lane **taken)
{
    kvl_lane **at, *lane;

    pthread_mutex_lock(&dir->lane_lock);
    for (at = &dir->spare; *at && !kvl_lane_is_idle(*at); at = &(*at)->next)
        ;
    lane = *at;
    if (lane) {
        *at = lane->next;
        dir->n_spare--;
    }
    kvl_lane *surplus = surplus_of(dir);
    bool may_make = dir->n_spare < KVL_STUCK_LANES;
    pthread_mutex_unlock(&dir->lane_lock);
    free_all(surplus);
    if (!lane && !may_make)
        return EAGAIN;
    if (!lane)
        lane = kvl_lane_new();
    for (uint32_t i = 0; lane && i < KVL_LANE_PIECES; i++)
        lane->piece[i].bytes = 0, lane->piece[i].moved = 0;
    *taken = lane;
    return lane ? 0 : ENOMEM;
}

static void give_lane(kvl_dir *dir, kvl_lane *lane)
{
    pthread_mutex_lock(&dir->lane_lock);
    lane->next = dir->spare;
    dir->spare = lane;
    dir->n_spare++;
    kvl_lane *surplus = surplus_of(dir);
    pthread_mutex_unlock(&dir->lane_lock);
    free_all(surplus);
}

/* ------------------------------------------------------------------------------------------- what a blob holds */

/* One that cannot be removed now is swept later. */
static void remove_temp(kvl_dir_blob *b)
{
    if (b->temp[0])
        (void)unlinkat(b->dir->root, b->temp, 0);
    b->temp[0] = 0;
}

/* Gives back everything but the promise. A child of the process must neither lock nor remove what its parent writes. */
static void end_blob(kvl_dir_blob *b)
{
    bool in_child = kvl_dir_in_child(b->dir);

    if (b->fd >= 0)
        close(b->fd);
    if (!in_child)
        remove_temp(b);
    if (b->lane && in_child)
        kvl_lane_free(b->lane, true);
    else if (b->lane)
        give_lane(b->dir, b->lane);
    free(b);
}

static int promise(kvl_dir *dir, uint64_t bytes)
{
    pthread_mutex_lock(&dir->lock);
    int error = kvl_dir_promise(dir, bytes);
    pthread_mutex_unlock(&dir->lock);
    return error;
}

static void note_reserved(kvl_dir_blob *b)
{
    if (!b->is_reserved)
        return;
    pthread_mutex_lock(&b->dir->lock);
    kvl_dir_note_reserved(b->dir, b->bytes);
    pthread_mutex_unlock(&b->dir->lock);
}

static void break_promise(kvl_dir *dir, uint64_t bytes)
{
    pthread_mutex_lock(&dir->lock);
    kvl_dir_settle(dir, bytes, false, false);
    pthread_mutex_unlock(&dir->lock);
}

static int open_blob(kvl_dir *dir, const uint8_t *name, uint64_t put_bytes, kvl_dir_blob **opened)
{
    kvl_dir_blob *b = calloc(1, sizeof *b);

    if (!b)
        return ENOMEM;
    b->dir = dir;
    b->fd = -1;
    b->is_put = put_bytes > 0;
    b->bytes = put_bytes;
    memcpy(b->name, name, sizeof b->name);
    int error = take_lane(dir, &b->lane);
    if (!error)
        error = b->is_put ? open_put(b) : open_get(b);
    if (error) {
        end_blob(b);
        return error;
    }
    b->is_direct = kvl_dir_set_direct(b->fd, true);
    b->in_order = true;
    if (b->is_put)
        note_reserved(b);
    else
        kvl_dir_read_ahead(b);
    *opened = b;
    return 0;
}

int kvl_dir_open(void *ctx, const uint8_t *name, uint64_t put_bytes, void **blob)
{
    kvl_dir *dir = ctx;
    kvl_dir_blob *opened;

    if (kvl_dir_in_child(dir))
        return ECHILD;
    int error = put_bytes ? promise(dir, put_bytes) : 0;
    if (error)
        return error;
    error = open_blob(dir, name, put_bytes, &opened);
    if (!error)
        *blob = opened;
    else if (put_bytes)
        break_promise(dir, put_bytes);
    return error;
}

/* ------------------------------------------------------------------------------------------- close */

static int link_temp(kvl_dir_blob *b, int leaf, const char *hex)
{
    if (renameat2(b->dir->root, b->temp, leaf, hex, RENAME_NOREPLACE) == 0) {
        b->temp[0] = 0;
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS && errno != EPERM)
        return errno;
    return linkat(b->dir->root, b->temp, leaf, hex, 0) == 0 ? 0 : errno; /* the temporary name goes in the end */
}

/* Before Linux 6.10 the first way takes a capability; the second takes /proc. Where neither is to be had the next blob
 * gets a name at once. */
static int link_nameless(kvl_dir_blob *b, int leaf, const char *hex)
{
    char path[32];

    if (linkat(b->fd, "", leaf, hex, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno == EEXIST)
        return EEXIST;
    snprintf(path, sizeof path, "/proc/self/fd/%d", b->fd);
    if (linkat(AT_FDCWD, path, leaf, hex, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    if (errno == ENOENT || errno == EPERM || errno == EACCES)
        atomic_store(&b->dir->use_names, true);
    return errno;
}

/* What is in the place of a blob: a blob stays and is as good as ours, anything else goes, or no put would ever be
 * seen. EAGAIN: the place is free now. */
static int clear_place(const kvl_dir *dir, int leaf, const char *hex)
{
    struct stat st;

    if (fstatat(leaf, hex, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? EAGAIN : errno;
    if (kvl_dir_is_blob(dir, &st))
        return 0;
    return unlinkat(leaf, hex, 0) == 0 || errno == ENOENT ? EAGAIN : errno;
}

static int link_blob(kvl_dir_blob *b, bool *is_new)
{
    char hex[KVL_HEX_BYTES];
    int leaf;

    kvl_dir_hex(hex, b->name);
    int error = kvl_dir_leaf(b->dir, hex, true, &leaf);
    if (error)
        return error;
    *is_new = false;
    for (int i = 0; i < LINK_TRIES; i++) {
        error = b->temp[0] ? link_temp(b, leaf, hex) : link_nameless(b, leaf, hex);
        *is_new = !error;
        if (error == EEXIST)
            error = clear_place(b->dir, leaf, hex);
        if (error != EAGAIN)
            break;
    }
    close(leaf);
    return error;
}

static int finish(kvl_dir_blob *b)
{
    struct timespec now = kvl_dir_timespec(kvl_dir_stamp_now_ns());
    int error = b->error ? b->error : kvl_dir_put_end(b);

    return !error && futimens(b->fd, (struct timespec[]){now, now}) != 0 ? errno : error;
}

/* What is whole gets its name. A look comes before or after, so that it counts a blob once. */
static int end_put(kvl_dir_blob *b, bool is_whole)
{
    bool is_new = false;

    pthread_mutex_lock(&b->dir->lock);
    int error = is_whole ? link_blob(b, &is_new) : 0;
    remove_temp(b); /* a file of two names is not counted */
    kvl_dir_settle(b->dir, b->bytes, b->is_reserved, is_new);
    pthread_mutex_unlock(&b->dir->lock);
    return error;
}

int kvl_dir_size(void *blob, uint64_t *bytes)
{
    const kvl_dir_blob *b = blob;

    if (kvl_dir_in_child(b->dir))
        return ECHILD;
    if (b->is_put)
        return EINVAL;
    *bytes = b->bytes;
    return 0;
}

int kvl_dir_close(void *blob, bool want_commit)
{
    kvl_dir_blob *b = blob;
    bool in_child = kvl_dir_in_child(b->dir);
    int error = 0;

    if (in_child && (b->is_put || want_commit))
        error = ECHILD;
    else if (want_commit)
        error = b->is_put ? finish(b) : EINVAL;
    else if (!b->is_put && !b->is_direct)
        (void)posix_fadvise(b->fd, 0, 0, POSIX_FADV_DONTNEED);
    if (b->is_put && !in_child) {
        int unnamed = end_put(b, want_commit && !error);

        error = error ? error : unnamed;
    }
    end_blob(b);
    return error;
}
