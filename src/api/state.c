/* SPDX-License-Identifier: MIT */
/* state: the public calls that write states and read them, through functions of the caller's and with files. */
#include "api/door.h"
#include "api/reclaim.h"
#include "core/lock.h"
#include "host/file.h"
#include "state/reader.h"
#include "state/rows.h"
#include "state/writer.h"

#include <kvlazy/state.h>

/* ------------------------------------------------------------------------------------------- the caller's functions */

typedef struct caller_fn {
    kvlazy_write write;
    kvlazy_read read;
    void *ctx;
} caller_fn;

static int pass_out(void *ctx, void *data, size_t bytes)
{
    const caller_fn *fn = ctx;

    return fn->write(fn->ctx, data, bytes) ? KVLAZY_EIO : KVLAZY_OK;
}

static int pass_in(void *ctx, void *data, size_t bytes)
{
    const caller_fn *fn = ctx;

    return fn->read(fn->ctx, data, bytes) ? KVLAZY_EIO : KVLAZY_OK;
}

/* The whole group is written and read, and every kind of cache is told what it cannot do. */
static int enter(kvlazy_cache *c, kvlazy_seq_id seq, bool has_function)
{
    int status = kvl_enter(c, KVL_DOOR_GROUP);

    if (status)
        return status;
    if (kvl_has_engine_cells(c))
        return kvl_leave(c, KVLAZY_ENOTSUP);
    return has_function && (seq == -1 || kvl_is_seq(c, seq)) ? KVLAZY_OK : kvl_leave(c, KVLAZY_EINVAL);
}

int kvlazy_state_bytes(kvlazy_cache *c, kvlazy_seq_id seq, uint64_t *bytes)
{
    int status = enter(c, seq, bytes != NULL);

    return status ? status : kvl_leave(c, kvl_state_measure(c, seq, bytes));
}

int kvlazy_state_write(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_write write, void *ctx)
{
    caller_fn fn = {.write = write, .ctx = ctx};
    kvl_state_ends ends = {.pass = pass_out, .ctx = &fn};
    int status = enter(c, seq, write != NULL);

    return status ? status : kvl_leave(c, kvl_state_write(c, seq, &ends));
}

int kvlazy_state_read(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_read read, void *ctx)
{
    caller_fn fn = {.read = read, .ctx = ctx};
    kvl_state_ends ends = {.pass = pass_in, .ctx = &fn, .reclaim = kvl_reclaim_for_held};
    int status = enter(c, seq, read != NULL);

    return status ? status : kvl_leave(c, kvl_state_read(c, seq, &ends));
}

/* ------------------------------------------------------------------------------------------- files */

static int write_file(void *ctx, void *data, size_t bytes)
{
    return kvl_file_write(ctx, data, bytes);
}

static int expect_in_file(void *ctx, uint64_t bytes)
{
    return kvl_file_expect(ctx, bytes);
}

static int read_file(void *ctx, void *data, size_t bytes)
{
    kvl_file *file = ctx;
    int status = kvl_file_read(file, data, bytes);

    return status && file->ended ? KVLAZY_ESTATE : status;
}

static int at_end(void *ctx)
{
    kvl_file *file = ctx;
    char byte;
    int status = kvl_file_read(file, &byte, 1);

    return !status ? KVLAZY_ESTATE : file->ended ? KVLAZY_OK : status;
}

/* The file system is asked with no lock held; the call is inside all the while, so that what a log line destroys stays
 * a ghost until it is over. */
static void begin_file(kvlazy_cache *c)
{
    kvl_begin_telling(c);
}

static void end_file(kvlazy_cache *c)
{
    kvl_end_telling(c->group);
}

/* What the file system said goes to the log. */
static int leave_file(kvlazy_cache *c, const char *call, const kvl_file *file, int status)
{
    if (status == KVLAZY_EIO && file->why[0] && kvl_is_cache(c))
        kvl_log_note(&c->log, KVLAZY_LOG_ERROR, "%s: %s", call, file->why);
    return kvl_leave(c, status);
}

int kvlazy_state_save(kvlazy_cache *c, kvlazy_seq_id seq, const char *path, const void *note, size_t note_bytes,
                      uint32_t flags)
{
    kvl_file file = {.fd = -1};
    kvl_state_ends ends = {.pass = write_file,
                           .ctx = &file,
                           .expect = expect_in_file,
                           .note = (void *)(uintptr_t)note /* only read */,
                           .note_bytes = note_bytes};
    int status = enter(c, seq, path && (note || !note_bytes) && !(flags & ~(uint32_t)KVLAZY_STATE_SYNC));

    if (status)
        return status;
    begin_file(c);
    status = kvl_file_begin(&file, path);
    end_file(c);
    if (status)
        return leave_file(c, "state_save", &file, status);
    status = kvl_is_cache(c) ? kvl_state_write(c, seq, &ends) : KVLAZY_EINVAL;
    begin_file(c);
    if (!status)
        status = kvl_file_commit(&file, flags & KVLAZY_STATE_SYNC);
    else
        kvl_file_drop(&file);
    end_file(c);
    return leave_file(c, "state_save", &file, status);
}

int kvlazy_state_load(kvlazy_cache *c, kvlazy_seq_id seq, const char *path, void *note, size_t *note_bytes)
{
    kvl_file file = {.fd = -1};
    kvl_state_ends ends = {.pass = read_file,
                           .ctx = &file,
                           .at_end = at_end,
                           .note = note,
                           .note_bytes = note_bytes ? *note_bytes : 0,
                           .note_is = note_bytes,
                           .reclaim = kvl_reclaim_for_held};
    int status = enter(c, seq, path && (!note_bytes || !*note_bytes || note));

    if (status)
        return status;
    begin_file(c);
    status = kvl_file_open(&file, path);
    end_file(c);
    if (!status)
        status = kvl_is_cache(c) ? kvl_state_read(c, seq, &ends) : KVLAZY_EINVAL;
    begin_file(c);
    kvl_file_close(&file);
    end_file(c);
    return leave_file(c, "state_load", &file, status);
}

/* ------------------------------------------------------------------------------------------- rows alone */

static int enter_rows(kvlazy_cache *c, uint32_t stream, const uint32_t *cell, uint32_t n, bool has_function)
{
    int status = kvl_enter(c, KVL_DOOR_ENGINE);

    if (status)
        return status;
    if (!has_function || stream >= c->params.n_stream || (n && !cell))
        return kvl_leave(c, KVLAZY_EINVAL);
    for (uint32_t i = 0; i < n; i++)
        if (cell[i] >= c->params.kv_size)
            return kvl_leave(c, KVLAZY_EINVAL);
    return KVLAZY_OK;
}

int kvlazy_state_rows_write(kvlazy_cache *c, uint32_t stream, const uint32_t *cell, uint32_t n, kvlazy_write write,
                            void *ctx)
{
    caller_fn fn = {.write = write, .ctx = ctx};
    kvl_state_ends ends = {.pass = pass_out, .ctx = &fn};
    int status = enter_rows(c, stream, cell, n, write != NULL);

    return status ? status : kvl_leave(c, kvl_state_rows_write(c, stream, cell, n, &ends));
}

int kvlazy_state_rows_read(kvlazy_cache *c, uint32_t stream, const uint32_t *cell, uint32_t n, kvlazy_read read,
                           void *ctx)
{
    caller_fn fn = {.read = read, .ctx = ctx};
    kvl_state_ends ends = {.pass = pass_in, .ctx = &fn, .reclaim = kvl_reclaim_for_held};
    int status = enter_rows(c, stream, cell, n, read != NULL);

    return status ? status : kvl_leave(c, kvl_state_rows_read(c, stream, cell, n, &ends));
}
