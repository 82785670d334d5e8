/* SPDX-License-Identifier: MIT */
/* seq: the public calls about sequences. */
#include "core/seq.h"
#include "api/door.h"
#include "api/reclaim.h"
#include "core/copy.h"

int kvlazy_seq_rm(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    int status = kvl_enter(c, KVL_DOOR_SEQ);

    if (status)
        return status;
    return kvl_leave(c, seq == -1 || kvl_is_seq(c, seq) ? kvl_seq_rm(c, seq, p0, p1) : KVLAZY_EINVAL);
}

int kvlazy_seq_cp(kvlazy_cache *c, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    int status = kvl_enter(c, KVL_DOOR_SEQ);

    if (status)
        return status;
    if (!kvl_is_seq(c, src) || !kvl_is_seq(c, dst))
        return kvl_leave(c, KVLAZY_EINVAL);
    status = kvl_copy(c, src, dst, p0, p1);
    if (status == KVLAZY_EBUDGET && kvl_reclaim(c))
        status = kvl_copy(c, src, dst, p0, p1);
    return kvl_leave(c, status);
}

int kvlazy_seq_keep(kvlazy_cache *c, kvlazy_seq_id seq)
{
    int status = kvl_enter(c, KVL_DOOR_SEQ);

    if (status)
        return status;
    if (!kvl_is_seq(c, seq))
        return kvl_leave(c, KVLAZY_EINVAL);
    kvl_seq_keep(c, seq);
    return kvl_leave(c, KVLAZY_OK);
}

int kvlazy_seq_add(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvlazy_pos delta)
{
    int status = kvl_enter(c, KVL_DOOR_SEQ);

    if (status)
        return status;
    return kvl_leave(c, kvl_is_seq(c, seq) ? kvl_seq_move(c, seq, p0, p1, (kvl_motion){delta, 1}) : KVLAZY_EINVAL);
}

int kvlazy_seq_div(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, int d)
{
    int status = kvl_enter(c, KVL_DOOR_SEQ);

    if (status)
        return status;
    return kvl_leave(c,
                     kvl_is_seq(c, seq) && d >= 1 ? kvl_seq_move(c, seq, p0, p1, (kvl_motion){0, d}) : KVLAZY_EINVAL);
}

int kvlazy_shift_done(kvlazy_cache *c)
{
    int status = kvl_enter(c, KVL_DOOR_CELLS);

    if (status)
        return status;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_cells_rotated(&c->stream[s].cells);
    return kvl_leave(c, KVLAZY_OK);
}

/* ------------------------------------------------------------------------------------------- where it begins and ends
 */

static kvlazy_pos pos_of(const kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos (*which)(const kvl_index *))
{
    if (kvl_enter(c, KVL_DOOR_LOOK))
        return -1;
    kvlazy_pos pos = kvl_is_seq(c, seq) ? which(kvl_index_of(kvl_mutable(c), seq)) : -1;

    kvl_leave_look(c, KVLAZY_OK);
    return pos;
}

kvlazy_pos kvlazy_seq_pos_min(const kvlazy_cache *c, kvlazy_seq_id seq)
{
    return pos_of(c, seq, kvl_index_min);
}

kvlazy_pos kvlazy_seq_pos_max(const kvlazy_cache *c, kvlazy_seq_id seq)
{
    return pos_of(c, seq, kvl_index_max);
}
