/* SPDX-License-Identifier: MIT */
/*
 * dir_space_linux: what the files of a directory take, and which of them go first. Other processes write, use and
 * evict at the same time, so all that is kept here is a guess: a file is looked at once more before it goes, and all of
 * them every ten seconds. Opening a blob for writing and closing it call this; it never reads a blob.
 */
#include "store/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <bsd/stdlib.h>

#define NS_PER_MS INT64_C(1000000)
#define TEMP_LIFE_NS (INT64_C(3600) * 1000 * NS_PER_MS)
#define FREE_BYTES_MAX (UINT64_C(1) << 30)

enum {
    FREE_PART = 20,       /* this part of a file system stays free, or FREE_BYTES_MAX */
    LOOK_SHARE = 100,     /* looking takes at most this part of the time */
    FILES_AT_FIRST = 256, /* room for so many, then twice as many */
};

/* ------------------------------------------------------------------------------------------- look */

/* What one look finds. */
typedef struct look {
    const kvl_dir *dir;
    kvl_dir_file *file;
    size_t n, room;
    uint64_t bytes;
} look;

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False: no blob is called that. */
static bool name_of(uint8_t name[KVL_NAME_BYTES], const char *hex)
{
    if (strlen(hex) != 2 * KVL_NAME_BYTES)
        return false;
    for (int i = 0; i < KVL_NAME_BYTES; i++) {
        int high = digit_of(hex[2 * i]), low = digit_of(hex[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        name[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static int add_file(look *l, const uint8_t *name, const struct stat *st)
{
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : FILES_AT_FIRST;
        kvl_dir_file *file = reallocarray(l->file, room, sizeof *file);

        if (!file)
            return ENOMEM;
        l->file = file;
        l->room = room;
    }
    kvl_dir_file *f = &l->file[l->n++];
    memcpy(f->name, name, sizeof f->name);
    f->used_ns = kvl_dir_stamp_ns(st);
    f->bytes = kvl_round_up((uint64_t)st->st_size, KVL_BLOCK_BYTES);
    l->bytes += f->bytes;
    return 0;
}

/* A file that is gone between its name and its figures is no error: others evict too. */
static int see_blob(void *arg, int leaf, const char *hex)
{
    look *l = arg;
    uint8_t name[KVL_NAME_BYTES];
    struct stat st;

    if (!name_of(name, hex))
        return 0;
    if (fstatat(leaf, hex, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : errno;
    return kvl_dir_is_blob(l->dir, &st) ? add_file(l, name, &st) : 0;
}

/* What a crash left, once no process can still be writing it. What lies in the future begins to age now. */
static int see_temp(void *arg, int root, const char *name)
{
    int64_t now_ns = *(const int64_t *)arg;
    struct stat st;

    if (strncmp(name, KVL_TEMP_PREFIX, strlen(KVL_TEMP_PREFIX)) != 0)
        return 0;
    if (fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : errno;
    if (kvl_dir_stamp_ns(&st) > now_ns)
        (void)utimensat(root, name, NULL, AT_SYMLINK_NOFOLLOW);
    else if (kvl_dir_stamp_ns(&st) < now_ns - TEMP_LIFE_NS && unlinkat(root, name, 0) != 0 && errno != ENOENT)
        return errno;
    return 0;
}

/* Calls `see` with every name in a directory, until one fails. */
static int for_each_entry(int dir, int (*see)(void *arg, int dir, const char *name), void *arg)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    int error = list ? 0 : errno;

    if (fd >= 0 && !list)
        close(fd);
    while (list && !error) {
        errno = 0;
        struct dirent *entry = readdir(list);

        if (!entry) {
            error = errno;
            break;
        }
        error = see(arg, fd, entry->d_name);
    }
    if (list)
        closedir(list);
    return error;
}

/* All blobs below a directory, which lies `depth` levels above them. */
static int look_below(look *l, int parent, int depth)
{
    int error = 0;

    if (depth == 0)
        return for_each_entry(parent, see_blob, l);
    for (int i = 0; i < KVL_FAN_OUT && !error; i++) {
        int below;

        error = kvl_dir_below(parent, "0123456789abcdef"[i], false, &below);
        if (error == ENOENT || error == ENOTDIR || error == ELOOP) {
            error = 0; /* none was made yet, or it is not ours */
        } else if (!error) {
            error = look_below(l, below, depth - 1);
            close(below);
        }
    }
    return error;
}

static int by_use(const void *a, const void *b)
{
    const kvl_dir_file *x = a, *y = b;

    return x->used_ns < y->used_ns ? -1 : x->used_ns > y->used_ns;
}

static int open_leaf_of(const kvl_dir *dir, const uint8_t *name, char hex[KVL_HEX_BYTES], int *leaf)
{
    kvl_dir_hex(hex, name);
    return kvl_dir_leaf(dir, hex, false, leaf);
}

/* A clock was wrong, here or when the file was used. Now is written down, so that the file grows old like the others;
 * their order stays. Where that is refused the next look will try again. */
static void bring_back(const kvl_dir *dir, look *l, int64_t now_ns)
{
    for (size_t i = l->n; i > 0 && l->file[i - 1].used_ns > now_ns; i--) {
        kvl_dir_file *f = &l->file[i - 1];
        char hex[KVL_HEX_BYTES];
        int leaf;

        f->used_ns = now_ns - (int64_t)(l->n - i);
        if (open_leaf_of(dir, f->name, hex, &leaf) != 0)
            continue;
        struct timespec used = kvl_dir_timespec(f->used_ns);
        (void)utimensat(leaf, hex, (struct timespec[]){used, used}, AT_SYMLINK_NOFOLLOW);
        close(leaf);
    }
}

int kvl_dir_look(kvl_dir *dir)
{
    bool was_due = atomic_exchange(&dir->look_due, false); /* what is dropped from here on is for the next look */
    uint64_t begin_ms = kvl_store_now_ms();
    int64_t now_ns = kvl_dir_stamp_now_ns();
    look l = {.dir = dir};

    int error = for_each_entry(dir->root, see_temp, &now_ns);
    if (!error)
        error = look_below(&l, dir->root, 2);
    if (error) {
        if (was_due)
            atomic_store(&dir->look_due, true);
        free(l.file);
        return error;
    }
    if (l.n)
        qsort(l.file, l.n, sizeof *l.file, by_use);
    now_ns = kvl_dir_stamp_now_ns();
    bring_back(dir, &l, now_ns);
    free(dir->space.file);
    kvl_dir_space *s = &dir->space;
    s->held_bytes = l.bytes;
    s->file = l.file;
    s->n_file = l.n;
    s->next_file = 0;
    s->looked_at_ms = kvl_store_now_ms();
    s->look_took_ms = s->looked_at_ms - begin_ms;
    return 0;
}

/* ------------------------------------------------------------------------------------------- evict */

static void no_longer_held(kvl_dir_space *s, uint64_t bytes)
{
    s->held_bytes -= kvl_min(s->held_bytes, bytes);
}

/* A file that was used since the last look stays, and so does one that was put in its place. ENOENT: it is gone. */
static int evict_unless_used(const kvl_dir *dir, const kvl_dir_file *f, bool *used)
{
    char hex[KVL_HEX_BYTES];
    struct stat st;
    int leaf;
    int error = open_leaf_of(dir, f->name, hex, &leaf);

    if (error)
        return error;
    if (fstatat(leaf, hex, &st, AT_SYMLINK_NOFOLLOW) != 0)
        error = errno;
    *used = !error && (!kvl_dir_is_blob(dir, &st) || kvl_dir_stamp_ns(&st) != f->used_ns);
    if (!error && !*used && unlinkat(leaf, hex, 0) != 0)
        error = errno;
    close(leaf);
    return error;
}

/* The least recently used file goes. ENOSPC: all that are left were used a moment ago. */
static int evict_one(kvl_dir *dir)
{
    kvl_dir_space *s = &dir->space;
    int64_t young_ns = kvl_dir_stamp_now_ns() - KVL_LOOK_MS * NS_PER_MS;

    while (s->next_file < s->n_file && s->file[s->next_file].used_ns <= young_ns) {
        const kvl_dir_file *f = &s->file[s->next_file++];
        bool used = false;
        int error = evict_unless_used(dir, f, &used);

        if (error && error != ENOENT)
            return error;
        if (used)
            continue;
        no_longer_held(s, f->bytes);
        return 0;
    }
    return ENOSPC;
}

/* Evicts until no more than the limit is held, `bytes` more included. */
static int keep_limit(kvl_dir *dir, uint64_t bytes)
{
    kvl_dir_space *s = &dir->space;
    int error = 0;

    while (!error && s->held_bytes + s->in_flight_bytes + bytes > s->max_bytes)
        error = evict_one(dir);
    return error;
}

/* What is free after `bytes` more, and the floor: how much is missing between them. */
static int missing_free(const kvl_dir *dir, uint64_t bytes, uint64_t *missing_bytes)
{
    struct statvfs fs;

    if (fstatvfs(dir->root, &fs) != 0)
        return errno;
    uint64_t floor_bytes = kvl_min((uint64_t)fs.f_blocks * fs.f_frsize / FREE_PART, FREE_BYTES_MAX);
    uint64_t needed_bytes = floor_bytes + dir->space.unreserved_bytes + bytes;
    *missing_bytes = needed_bytes - kvl_min(needed_bytes, (uint64_t)fs.f_bavail * fs.f_frsize);
    return 0;
}

/* On a disk that is full a blob may take the place of as many bytes as it brings. More than that others have taken, and
 * giving it up for them would empty the place without end. */
static int keep_floor(kvl_dir *dir, uint64_t bytes)
{
    uint64_t held_bytes = dir->space.held_bytes, missing_bytes = 0;
    int error = missing_free(dir, bytes, &missing_bytes);

    if (error || !missing_bytes)
        return error;
    if (missing_bytes > bytes)
        return ENOSPC;
    while (!error && held_bytes - dir->space.held_bytes < missing_bytes)
        error = evict_one(dir);
    if (!error)
        error = missing_free(dir, bytes, &missing_bytes);
    return error ? error : missing_bytes ? ENOSPC : 0;
}

static bool is_look_due(const kvl_dir *dir)
{
    const kvl_dir_space *s = &dir->space;
    uint64_t age_ms = kvl_store_now_ms() - s->looked_at_ms;

    if (atomic_load(&dir->look_due) || age_ms >= kvl_max(KVL_LOOK_MS, LOOK_SHARE * s->look_took_ms))
        return true;
    return s->next_file == s->n_file && age_ms >= KVL_LOOK_MS;
}

int kvl_dir_promise(kvl_dir *dir, uint64_t bytes)
{
    kvl_dir_space *s = &dir->space;

    if (bytes > s->max_bytes || kvl_round_up(bytes, KVL_BLOCK_BYTES) > s->max_bytes)
        return ENOSPC;
    bytes = kvl_round_up(bytes, KVL_BLOCK_BYTES);
    int error = is_look_due(dir) ? kvl_dir_look(dir) : 0;
    if (!error)
        error = keep_limit(dir, bytes);
    if (!error)
        error = keep_floor(dir, bytes);
    if (error)
        return error;
    s->in_flight_bytes += bytes;
    s->unreserved_bytes += bytes;
    return 0;
}

void kvl_dir_note_reserved(kvl_dir *dir, uint64_t bytes)
{
    dir->space.unreserved_bytes -= kvl_round_up(bytes, KVL_BLOCK_BYTES);
}

void kvl_dir_settle(kvl_dir *dir, uint64_t bytes, bool is_reserved, bool kept)
{
    bytes = kvl_round_up(bytes, KVL_BLOCK_BYTES);
    dir->space.in_flight_bytes -= bytes;
    dir->space.unreserved_bytes -= is_reserved ? 0 : bytes;
    if (kept)
        dir->space.held_bytes += bytes;
}
