/* SPDX-License-Identifier: MIT */
/* bookkeeping: see bookkeeping.h. */
#include "core/bookkeeping.h"

static uint64_t plan_bytes(const kvl_plan *p)
{
    uint64_t token_bytes = sizeof *p->stream + sizeof *p->cell + sizeof *p->owner_end + sizeof *p->pos +
                           sizeof *p->filled + sizeof *p->run + (p->victim ? sizeof *p->victim : 0);

    return p->cap_ubatch * (uint64_t)sizeof *p->ubatch + p->cap_token * token_bytes +
           p->cap_owner * (uint64_t)sizeof *p->owner;
}

static uint64_t arena_bytes(const kvlazy_arena *a)
{
    return kvl_bits_words(a->n_page) * sizeof *a->touched + a->cap_range * (uint64_t)sizeof *a->range +
           a->n_block * (uint64_t)sizeof *a->block;
}

uint64_t kvl_bookkeeping_bytes(const kvlazy_cache *c)
{
    const kvl_geometry *g = &c->rows.geometry;
    uint64_t seq_bytes = sizeof *c->seq + sizeof *c->active.seq + sizeof *c->plan.order +
                         (kvl_has_window(c) ? sizeof *c->plan.oldest : 0) + sizeof *c->evict.part +
                         sizeof *c->evict.turns.turn + sizeof *c->group->losses.loss;
    uint64_t bytes =
        sizeof *c + plan_bytes(&c->plan) + c->params.n_seq_max * seq_bytes +
        c->params.n_stream * (uint64_t)(sizeof *c->stream + sizeof *c->rows.stream + sizeof *c->plan.last_run) +
        g->n_tensor * (uint64_t)(sizeof *g->tensor) + c->mask.n_key * (uint64_t)sizeof *c->mask.key;

    for (uint32_t s = 0; s < c->params.n_stream; s++)
        bytes += kvl_cells_bytes(&c->stream[s].cells);
    for (uint32_t i = 0; i < g->n_arena; i++)
        bytes += sizeof *g->arena + (g->arena[i] ? arena_bytes(g->arena[i]) : 0);
    return bytes;
}

void kvl_bookkeeping_rest(kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        if (c->stream[s].rests)
            kvl_cells_shrink_room(&c->stream[s].cells);
        c->stream[s].rests = false;
    }
}

void kvl_bookkeeping_shrink(kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_cells_shrink_room(&c->stream[s].cells);
}
