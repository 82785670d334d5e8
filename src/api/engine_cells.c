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

int kvlazy_touch(kvlazy_cache *c, uint32_t stream, uint32_t end)
{
    int status = kvl_enter(c, KVL_DOOR_ENGINE);

    if (status)
        return status;
    if (stream >= c->params.n_stream || end > c->params.kv_size || !c->group->open)
        return kvl_leave(c, KVLAZY_EINVAL);
    status = end ? kvl_engine_cells_touch(c, stream, end) : KVLAZY_OK;
    if (status == KVLAZY_EBUDGET && kvl_reclaim(c))
        status = kvl_engine_cells_touch(c, stream, end);
    if (end && !status)
        c->stream[stream].pending = true;
    return kvl_leave(c, refuse(c, status));
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
    status = kvl_engine_cells_take(c, (kvl_run){dst_stream, from, from + n});
    if (status == KVLAZY_EBUDGET && kvl_reclaim(c))
        status = kvl_engine_cells_take(c, (kvl_run){dst_stream, from, from + n});
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
