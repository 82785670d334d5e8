/* SPDX-License-Identifier: MIT */
/* engine_cells: the public calls of an engine that keeps its own cells. */
#include "core/engine_cells.h"
#include "api/door.h"
#include "api/reclaim.h"
#include "core/clock.h"

#include <kvlazy/engine_cells.h>

static int refuse(kvlazy_cache *c, int status)
{
    kvl_count_refusal(&c->counts, status);
    return status;
}

/* The runs may be the plan's own, which asking others for room does not change. */
static int touch(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    int status = kvl_engine_cells_touch(c, run, n_run);

    if (status == KVLAZY_EBUDGET && kvl_reclaim(c))
        status = kvl_engine_cells_touch(c, run, n_run);
    if (!status)
        c->stream[run->stream].pending = true;
    return refuse(c, status);
}

int kvlazy_touch_range(kvlazy_cache *c, uint32_t stream, uint32_t begin, uint32_t end)
{
    int status = kvl_enter(c, KVL_DOOR_ENGINE);

    if (status)
        return status;
    if (stream >= c->params.n_stream || begin > end || end > c->params.kv_size || !c->group->open)
        return kvl_leave(c, KVLAZY_EINVAL);
    return kvl_leave(c, begin < end ? touch(c, &(kvl_run){stream, begin, end}, 1) : KVLAZY_OK);
}

int kvlazy_touch(kvlazy_cache *c, uint32_t stream, uint32_t end)
{
    return kvlazy_touch_range(c, stream, 0, end);
}

/* Every cell is one of the stream's. */
static bool are_cells(const kvlazy_cache *c, uint32_t stream, const uint32_t *cell, uint32_t n)
{
    if (stream >= c->params.n_stream || (n && !cell) || n > INT32_MAX)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (cell[i] >= c->params.kv_size)
            return false;
    return true;
}

int kvlazy_touch_cells(kvlazy_cache *c, uint32_t stream, const uint32_t *cell, uint32_t n)
{
    int status = kvl_enter(c, KVL_DOOR_ENGINE);
    uint32_t n_run = 0;

    if (status)
        return status;
    if (!c->group->open || !are_cells(c, stream, cell, n))
        return kvl_leave(c, KVLAZY_EINVAL);
    if (!n)
        return kvl_leave(c, KVLAZY_OK);
    if (n == 1)
        return kvl_leave(c, touch(c, &(kvl_run){stream, *cell, *cell + 1}, 1));
    status = kvl_engine_cells_runs(c, stream, cell, n, &n_run);
    return kvl_leave(c, status ? refuse(c, status) : touch(c, c->plan.run, n_run));
}

int kvlazy_free_range(kvlazy_cache *c, uint32_t stream, uint32_t begin, uint32_t end)
{
    int status = kvl_enter(c, KVL_DOOR_ENGINE);

    if (status)
        return status;
    if (stream >= c->params.n_stream || begin > end || end > c->params.kv_size)
        return kvl_leave(c, KVLAZY_EINVAL);
    kvl_engine_cells_free(c, &(kvl_run){stream, begin, end}, 1, kvl_now(c));
    return kvl_leave(c, KVLAZY_OK);
}

int kvlazy_free_cells(kvlazy_cache *c, uint32_t stream, const uint32_t *cell, uint32_t n)
{
    int status = kvl_enter(c, KVL_DOOR_ENGINE);

    if (status)
        return status;
    if (!are_cells(c, stream, cell, n))
        return kvl_leave(c, KVLAZY_EINVAL);
    uint64_t now_ms = kvl_now(c);
    for (uint32_t i = 0; i < n; i++)
        kvl_engine_cells_free(c, &(kvl_run){stream, cell[i], cell[i] + 1}, 1, now_ms);
    return kvl_leave(c, KVLAZY_OK);
}

int kvlazy_copy_cells(kvlazy_cache *c, uint32_t src_stream, uint32_t dst_stream, uint32_t from, uint32_t n)
{
    int status = kvl_enter(c, KVL_DOOR_ENGINE);

    if (status)
        return status;
    if (src_stream >= c->params.n_stream || dst_stream >= c->params.n_stream || from > c->params.kv_size ||
        n > c->params.kv_size - from || !c->group->open)
        return kvl_leave(c, KVLAZY_EINVAL);
    if (kvl_rows_on_device(&c->rows))
        return kvl_leave(c, KVLAZY_ENOTSUP);
    if (!n || src_stream == dst_stream)
        return kvl_leave(c, KVLAZY_OK);
    kvl_run run = {dst_stream, from, from + n};

    status = kvl_engine_cells_take(c, &run, 1);
    if (status == KVLAZY_EBUDGET && kvl_reclaim(c))
        status = kvl_engine_cells_take(c, &run, 1);
    refuse(c, status);
    if (!status)
        kvl_rows_copy(&c->rows, (kvl_run){src_stream, from, from + n}, dst_stream, from);
    if (!status)
        c->stream[dst_stream].pending = true;
    return kvl_leave(c, status);
}

int kvlazy_ensure(kvlazy_cache *c, uint32_t stream, uint32_t cells)
{
    int status = kvl_enter(c, KVL_DOOR_ENGINE);

    if (status)
        return status;
    if (stream >= c->params.n_stream)
        return kvl_leave(c, KVLAZY_EINVAL);
    if (cells > c->params.kv_size)
        return kvl_leave(c, KVLAZY_ENOSLOT);
    if (cells > c->stream[stream].ensured) {
        c->stream[stream].ensured = cells;
        kvl_note_use(c, &c->stream[stream], kvl_now(c)); /* its rest ends this, also if nothing is touched */
    }
    return kvl_leave(c, KVLAZY_OK);
}
