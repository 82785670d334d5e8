/* SPDX-License-Identifier: MIT */
/*
 * lane_linux: a lane by the kernel's own asynchronous requests (io_submit), which work for files that are opened around
 * the page cache. Where the kernel has none or a sandbox forbids them, a lane has memory only.
 */
#include "store/lane.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

kvl_lane *kvl_lane_new(void)
{
    char *memory = aligned_alloc(KVL_BLOCK_BYTES, KVL_LANE_PIECES * KVL_PIECE_BYTES);
    kvl_lane *lane = memory ? calloc(1, sizeof *lane) : NULL;

    if (!lane) {
        free(memory);
        return NULL;
    }
    for (uint32_t i = 0; i < KVL_LANE_PIECES; i++)
        lane->piece[i].data = memory + i * KVL_PIECE_BYTES;
    if (syscall(SYS_io_setup, KVL_LANE_PIECES, &lane->aio) != 0)
        lane->aio = 0;
    return lane;
}

void kvl_lane_free(kvl_lane *lane, bool in_child)
{
    if (lane->aio && !in_child)
        (void)syscall(SYS_io_destroy, lane->aio);
    free(lane->piece[0].data);
    free(lane);
}

bool kvl_lane_start(kvl_lane *lane, kvl_piece *piece, int fd, bool is_write)
{
    struct iocb *job = &piece->job;

    if (!lane->aio)
        return false;
    *job = (struct iocb){.aio_lio_opcode = is_write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD};
    job->aio_data = (uintptr_t)piece;
    job->aio_fildes = (uint32_t)fd;
    job->aio_buf = (uintptr_t)piece->data;
    job->aio_nbytes = piece->bytes;
    job->aio_offset = (int64_t)piece->at;
    if (syscall(SYS_io_submit, lane->aio, 1L, &job) != 1)
        return false;
    piece->is_busy = true;
    lane->n_busy++;
    return true;
}

/* What is done, waiting so long for the first of it. 0 or errno. */
static int take_done(kvl_lane *lane, uint64_t wait_ms, uint32_t *n_done)
{
    struct timespec wait = {(time_t)(wait_ms / 1000), (long)(wait_ms % 1000) * 1000000};
    struct io_event event[KVL_LANE_PIECES];
    long n = syscall(SYS_io_getevents, lane->aio, wait_ms ? 1L : 0L, (long)KVL_LANE_PIECES, event, &wait);

    *n_done = 0;
    if (n < 0)
        return errno;
    for (long i = 0; i < n; i++) {
        kvl_piece *piece = (kvl_piece *)(uintptr_t)event[i].data;

        piece->is_busy = false;
        piece->moved = event[i].res;
    }
    *n_done = (uint32_t)n;
    lane->n_busy -= *n_done;
    return 0;
}

int kvl_lane_wait(kvl_lane *lane, const kvl_piece *piece, kvl_limit *limit)
{
    while (piece->is_busy) {
        uint64_t left_ms = kvl_limit_left_ms(limit);
        uint32_t n_done;

        if (!left_ms)
            return ETIMEDOUT;
        int error = take_done(lane, left_ms, &n_done);
        if (error && error != EINTR)
            return error;
        if (n_done)
            kvl_limit_moved(limit);
    }
    return 0;
}

bool kvl_lane_is_idle(kvl_lane *lane)
{
    uint32_t n_done;

    return !lane->n_busy || (take_done(lane, 0, &n_done) == 0 && !lane->n_busy);
}
