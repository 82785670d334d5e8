/* SPDX-License-Identifier: MIT */
/*
 * dir_io_linux: the bytes of one file of a directory of blobs, read or written around the page cache. That takes whole
 * blocks at whole blocks, and callers' sizes and alignment are not those of a disk: so there is one piece of memory
 * between them. Never opens or names a file.
 */
#include "dir.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { SIGNAL_TRIES = 8 }; /* EINTR is tried again, but not for ever */

/* How long a call may take. */
typedef struct limit {
    uint64_t begin_ms, last_ms, max_ms;
} limit;

static limit limit_of(uint32_t max_ms)
{
    uint64_t now_ms = kvl_dir_now_ms();

    return (limit){now_ms, now_ms, max_ms};
}

/* Asked before each piece: 0, or ETIMEDOUT when the time is over or the piece before took too long. */
static int may_go_on(limit *time)
{
    uint64_t now_ms = kvl_dir_now_ms();
    bool stalled = now_ms - time->last_ms > KVL_STALL_MS;

    time->last_ms = now_ms;
    return stalled || now_ms - time->begin_ms >= time->max_ms ? ETIMEDOUT : 0;
}

static bool is_aligned(const void *data, uint64_t at)
{
    return ((uintptr_t)data | at) % KVL_BLOCK_BYTES == 0;
}

bool kvl_dir_set_direct(int fd, bool direct)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* ------------------------------------------------------------------------------------------- read */

/* Up to `bytes` from the file; *got is less at its end only. Alignment that is not enough for this disk is learned from
 * its answer. */
static int read_blocks(kvl_dir_blob *b, char *data, size_t bytes, uint64_t at, size_t *got)
{
    int n_signal = 0;

    *got = 0;
    while (*got < bytes) {
        ssize_t n = pread(b->fd, data + *got, bytes - *got, (off_t)(at + *got));

        if (n == 0)
            break;
        if (n > 0)
            *got += (size_t)n;
        else if (errno == EINVAL && b->is_direct && kvl_dir_set_direct(b->fd, false))
            b->is_direct = false;
        else if (errno != EINTR || ++n_signal == SIGNAL_TRIES)
            return errno;
        if (n > 0 && b->is_direct && *got % KVL_BLOCK_BYTES)
            break; /* the end of the file: what follows could not be asked for */
    }
    if (!b->is_direct)
        (void)posix_fadvise(b->fd, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
    return 0;
}

/* The piece gets what surrounds byte `at`: as little as was asked for, or all of it where reading goes on in order. */
static int fill_piece(kvl_dir_blob *b, uint64_t at, size_t bytes)
{
    uint64_t begin = kvl_round_down(at, KVL_BLOCK_BYTES);
    bool in_order = b->piece_bytes && at == b->at + b->piece_bytes;
    size_t want =
        in_order ? KVL_PIECE_BYTES : kvl_min(kvl_round_up(at + bytes, KVL_BLOCK_BYTES) - begin, KVL_PIECE_BYTES);

    b->at = begin;
    b->piece_bytes = 0;
    int error = read_blocks(b, b->piece, want, begin, &b->piece_bytes);
    if (error)
        b->piece_bytes = 0;
    return error ? error : begin + b->piece_bytes <= at ? ENODATA : 0;
}

/* Some bytes at least, by the way that costs least. */
static int read_some(kvl_dir_blob *b, uint64_t at, char *data, size_t bytes, limit *time, size_t *got)
{
    int error = 0;

    if (at < b->at || at - b->at >= b->piece_bytes) {
        error = may_go_on(time);
        if (!error && is_aligned(data, at) && bytes >= KVL_BLOCK_BYTES) {
            error = read_blocks(b, data, kvl_min(kvl_round_down(bytes, KVL_BLOCK_BYTES), KVL_PIECE_BYTES), at, got);
            return error ? error : *got ? 0 : ENODATA;
        }
        if (!error)
            error = fill_piece(b, at, bytes);
        if (error)
            return error;
    }
    *got = kvl_min(bytes, b->at + b->piece_bytes - at);
    memcpy(data, b->piece + (at - b->at), *got);
    return 0;
}

int kvl_dir_read(void *blob, uint64_t at, void *data, size_t bytes, uint32_t max_ms)
{
    kvl_dir_blob *b = blob;
    limit time = limit_of(max_ms);
    int error = 0;

    if (kvl_dir_in_child(b->dir))
        return ECHILD;
    if (b->is_put || at > INT64_MAX - bytes)
        return EINVAL;
    for (size_t done = 0; done < bytes && !error;) {
        size_t got = 0;

        error = read_some(b, at + done, (char *)data + done, bytes - done, &time, &got);
        done += got;
    }
    return error;
}

/* ------------------------------------------------------------------------------------------- write */

/* Starts what was just written and waits for it, so that it can leave the page cache. Where there is no such call it
 * stays. */
static int push_out(const kvl_dir_blob *b, uint64_t at, size_t bytes)
{
    static const unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

    if (sync_file_range(b->fd, (off_t)at, (off_t)bytes, flags) != 0 &&
        (errno == EIO || errno == ENOSPC || errno == EDQUOT))
        return errno;
    (void)posix_fadvise(b->fd, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
    return 0;
}

static int write_blocks(kvl_dir_blob *b, const char *data, size_t bytes)
{
    int n_signal = 0;

    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(b->fd, data + done, bytes - done, (off_t)(b->at + done));

        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return EIO;
        else if (errno == EINVAL && b->is_direct && kvl_dir_set_direct(b->fd, false))
            b->is_direct = false;
        else if (errno != EINTR || ++n_signal == SIGNAL_TRIES)
            return errno;
    }
    int error = b->is_direct ? 0 : push_out(b, b->at, bytes);
    b->at += bytes;
    return error;
}

/* Whole blocks of the caller's go as they are when nothing waits before them; the rest is gathered. */
static int write_some(kvl_dir_blob *b, const char *data, size_t bytes, limit *time, size_t *took)
{
    int error = 0;

    if (!b->piece_bytes && is_aligned(data, 0) && bytes >= KVL_BLOCK_BYTES) {
        *took = kvl_min(kvl_round_down(bytes, KVL_BLOCK_BYTES), KVL_PIECE_BYTES);
        error = may_go_on(time);
        return error ? error : write_blocks(b, data, *took);
    }
    *took = kvl_min(bytes, KVL_PIECE_BYTES - b->piece_bytes);
    memcpy(b->piece + b->piece_bytes, data, *took);
    b->piece_bytes += *took;
    if (b->piece_bytes < KVL_PIECE_BYTES)
        return 0;
    error = may_go_on(time);
    if (!error)
        error = write_blocks(b, b->piece, KVL_PIECE_BYTES);
    b->piece_bytes = 0;
    return error;
}

int kvl_dir_write(void *blob, const void *data, size_t bytes, uint32_t max_ms)
{
    kvl_dir_blob *b = blob;
    limit time = limit_of(max_ms);

    if (kvl_dir_in_child(b->dir))
        return ECHILD;
    if (!b->is_put)
        return EINVAL;
    if (!b->error && bytes > b->bytes - (b->at + b->piece_bytes))
        b->error = EINVAL;
    for (size_t done = 0; done < bytes && !b->error;) {
        size_t took = 0;

        b->error = write_some(b, (const char *)data + done, bytes - done, &time, &took);
        done += took;
    }
    return b->error;
}

/* What is left of the last piece, padded to whole blocks, and then the file is cut to its length. */
int kvl_dir_put_end(kvl_dir_blob *b)
{
    size_t bytes = b->is_direct ? kvl_round_up(b->piece_bytes, KVL_BLOCK_BYTES) : b->piece_bytes;

    if (b->at + b->piece_bytes != b->bytes)
        return EINVAL;
    memset(b->piece + b->piece_bytes, 0, bytes - b->piece_bytes);
    int error = bytes ? write_blocks(b, b->piece, bytes) : 0;
    if (!error && ftruncate(b->fd, (off_t)b->bytes) != 0)
        error = errno;
    return error;
}
