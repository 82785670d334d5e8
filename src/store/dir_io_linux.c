/* SPDX-License-Identifier: MIT */
/*
 * dir_io_linux: the bytes of one file of a directory of blobs, read or written around the page cache. That takes whole
 * blocks at whole blocks, and callers' sizes and alignment are not those of a disk: so all bytes pass through the
 * pieces of a lane, which are written behind and read ahead. Never opens or names a file.
 *
 *     file    |--------|--------|--------|--------|----
 *     pieces       7        0        1        2            `first` mod 8 is 7: the piece in front, of `n_piece` = 4
 */
#include "store/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { SIGNAL_TRIES = 8 }; /* EINTR is tried again, but not for ever */

bool kvl_dir_set_direct(int fd, bool direct)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

static kvl_piece *piece_of(kvl_dir_blob *b, uint32_t i)
{
    return &b->lane->piece[i % KVL_LANE_PIECES];
}

/* An alignment that is not enough for this disk is learned from its answer. */
static bool goes_through_cache(kvl_dir_blob *b)
{
    if (errno != EINVAL || !b->is_direct || !kvl_dir_set_direct(b->fd, false))
        return false;
    b->is_direct = false;
    return true;
}

/* Before a request that is waited for where it is made: is there time for it? */
static int may_move(kvl_limit *limit)
{
    if (!kvl_limit_left_ms(limit))
        return ETIMEDOUT;
    kvl_limit_moved(limit);
    return 0;
}

/* ------------------------------------------------------------------------------------------- read */

/* In place. The end of the file is no error here. */
static int read_piece(kvl_dir_blob *b, kvl_piece *p)
{
    size_t done = 0;
    int n_signal = 0;

    while (done < p->bytes && p->at + done < b->bytes) {
        ssize_t n = pread(b->fd, p->data + done, p->bytes - done, (off_t)(p->at + done));

        if (n == 0)
            break;
        if (n > 0)
            done += (size_t)n;
        else if (!goes_through_cache(b) && (errno != EINTR || ++n_signal == SIGNAL_TRIES))
            return errno;
    }
    p->moved = (int64_t)done;
    if (!b->is_direct)
        (void)posix_fadvise(b->fd, (off_t)p->at, (off_t)p->bytes, POSIX_FADV_DONTNEED);
    return 0;
}

/* What follows the last piece, up to byte `end`. */
static kvl_piece *next_piece(kvl_dir_blob *b, uint64_t end)
{
    kvl_piece *p = piece_of(b, b->first + b->n_piece);

    p->at = b->end;
    p->bytes = kvl_min(kvl_round_up(end - b->end, KVL_BLOCK_BYTES), KVL_PIECE_BYTES);
    return p;
}

static void note_asked(kvl_dir_blob *b, const kvl_piece *p)
{
    b->end += p->bytes;
    b->n_piece++;
}

/* Asks for what comes next. */
static int ask_next(kvl_dir_blob *b, uint64_t end, kvl_limit *limit)
{
    kvl_piece *p = next_piece(b, end);
    int error = 0;

    if (!b->is_direct || !kvl_lane_start(b->lane, p, b->fd, false)) {
        error = may_move(limit);
        if (!error)
            error = read_piece(b, p);
    }
    if (!error)
        note_asked(b, p);
    return error;
}

void kvl_dir_read_ahead(kvl_dir_blob *b)
{
    while (b->is_direct && b->n_piece < KVL_LANE_PIECES && b->end < b->bytes) {
        kvl_piece *p = next_piece(b, b->bytes);

        if (!kvl_lane_start(b->lane, p, b->fd, false))
            return;
        note_asked(b, p);
    }
}

static int drop_front(kvl_dir_blob *b, kvl_limit *limit)
{
    int error = kvl_lane_wait(b->lane, piece_of(b, b->first), limit);

    if (error)
        return error;
    b->first++;
    b->n_piece--;
    return 0;
}

/* The piece with byte `at` comes to the front. Behind it, while reading goes on in order, are those that come next. */
static int bring(kvl_dir_blob *b, uint64_t at, size_t bytes, kvl_limit *limit)
{
    uint64_t block = kvl_round_down(at, KVL_BLOCK_BYTES);
    const kvl_piece *front;
    int error = 0;

    while (b->n_piece && (front = piece_of(b, b->first), at < front->at || at >= front->at + front->bytes))
        if ((error = drop_front(b, limit)) != 0)
            return error;
    if (!b->n_piece) {
        b->in_order = block == b->end || block == 0;
        b->end = block;
    }
    uint64_t end = b->in_order ? b->bytes : at + bytes;
    uint32_t n_most = b->is_direct && b->lane->aio ? KVL_LANE_PIECES : 1;
    while (!error && b->n_piece < n_most && b->end < end)
        error = ask_next(b, end, limit);
    return b->n_piece ? 0 : error; /* the one in front was asked for; those behind it were not yet */
}

/* Some bytes at least. A request that came back incomplete is made again in place, which says why. */
static int read_some(kvl_dir_blob *b, uint64_t at, char *data, size_t bytes, kvl_limit *limit, size_t *got)
{
    int error = bring(b, at, bytes, limit);
    kvl_piece *p = piece_of(b, b->first);

    if (!error)
        error = kvl_lane_wait(b->lane, p, limit);
    if (error)
        return error;
    uint64_t whole = kvl_min(p->bytes, b->bytes - p->at);
    if (p->moved < (int64_t)whole) {
        error = may_move(limit);
        if (!error)
            error = read_piece(b, p);
    }
    if (!error && p->moved < (int64_t)whole)
        error = ENODATA; /* the file became shorter */
    if (error)
        return error;
    *got = kvl_min(bytes, p->at + whole - at);
    memcpy(data, p->data + (at - p->at), *got);
    return 0;
}

int kvl_dir_read(void *blob, uint64_t at, void *data, size_t bytes, uint32_t max_ms)
{
    kvl_dir_blob *b = blob;
    kvl_limit limit = kvl_limit_of(max_ms);
    int error = 0;

    if (kvl_dir_in_child(b->dir))
        return ECHILD;
    if (b->is_put)
        return EINVAL;
    if (at > b->bytes || bytes > b->bytes - at)
        return ENODATA;
    for (size_t done = 0; done < bytes && !error;) {
        size_t got = 0;

        error = read_some(b, at + done, (char *)data + done, bytes - done, &limit, &got);
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

/* In place. */
static int write_piece(kvl_dir_blob *b, kvl_piece *p)
{
    int n_signal = 0;

    for (size_t done = 0; done < p->bytes;) {
        ssize_t n = pwrite(b->fd, p->data + done, p->bytes - done, (off_t)(p->at + done));

        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return EIO;
        else if (!goes_through_cache(b) && (errno != EINTR || ++n_signal == SIGNAL_TRIES))
            return errno;
    }
    p->moved = (int64_t)p->bytes;
    return b->is_direct ? 0 : push_out(b, p->at, p->bytes);
}

/* The piece that is being filled goes out, and the next one is filled. */
static int send_piece(kvl_dir_blob *b, size_t bytes, kvl_limit *limit)
{
    kvl_piece *p = piece_of(b, b->first++);
    int error = 0;

    p->at = b->end;
    p->bytes = bytes;
    b->end += b->fill_bytes;
    b->fill_bytes = 0;
    if (!b->is_direct || !kvl_lane_start(b->lane, p, b->fd, true)) {
        error = may_move(limit);
        if (!error)
            error = write_piece(b, p);
    }
    return error;
}

/* Waits until a piece is written. One that was not written whole is written again in place, which says why. */
static int settle_piece(kvl_dir_blob *b, kvl_piece *p, kvl_limit *limit)
{
    int error = kvl_lane_wait(b->lane, p, limit);

    if (error || p->moved == (int64_t)p->bytes)
        return error;
    error = may_move(limit);
    return error ? error : write_piece(b, p);
}

static int write_some(kvl_dir_blob *b, const char *data, size_t bytes, kvl_limit *limit, size_t *took)
{
    kvl_piece *p = piece_of(b, b->first);
    int error = b->fill_bytes ? 0 : settle_piece(b, p, limit);

    if (error)
        return error;
    *took = kvl_min(bytes, KVL_PIECE_BYTES - b->fill_bytes);
    memcpy(p->data + b->fill_bytes, data, *took);
    b->fill_bytes += *took;
    return b->fill_bytes < KVL_PIECE_BYTES ? 0 : send_piece(b, KVL_PIECE_BYTES, limit);
}

int kvl_dir_write(void *blob, const void *data, size_t bytes, uint32_t max_ms)
{
    kvl_dir_blob *b = blob;
    kvl_limit limit = kvl_limit_of(max_ms);

    if (kvl_dir_in_child(b->dir))
        return ECHILD;
    if (!b->is_put)
        return EINVAL;
    if (!b->error && bytes > b->bytes - (b->end + b->fill_bytes))
        b->error = EINVAL;
    for (size_t done = 0; done < bytes && !b->error;) {
        size_t took = 0;

        b->error = write_some(b, (const char *)data + done, bytes - done, &limit, &took);
        done += took;
    }
    return b->error;
}

int kvl_dir_put_end(kvl_dir_blob *b)
{
    kvl_limit limit = kvl_limit_of(UINT64_MAX);
    int error = b->end + b->fill_bytes == b->bytes ? 0 : EINVAL;

    if (!error && b->fill_bytes) {
        size_t bytes = b->is_direct ? kvl_round_up(b->fill_bytes, KVL_BLOCK_BYTES) : b->fill_bytes;

        memset(piece_of(b, b->first)->data + b->fill_bytes, 0, bytes - b->fill_bytes);
        error = send_piece(b, bytes, &limit);
    }
    for (uint32_t i = 0; i < KVL_LANE_PIECES && !error; i++)
        error = settle_piece(b, piece_of(b, b->first + i), &limit);
    if (!error && ftruncate(b->fd, (off_t)b->bytes) != 0)
        error = errno;
    return error;
}
