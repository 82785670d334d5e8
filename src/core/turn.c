/* SPDX-License-Identifier: MIT */
/* turn: see turn.h. */
#include "core/turn.h"
#include "core/cache.h"

/* ------------------------------------------------------------------------------------------- the order */

static uint64_t last_use_ms(const kvl_group *group, kvlazy_seq_id id)
{
    uint64_t last_ms = 0;

    for (const kvlazy_cache *m = group->first; m; m = m->next)
        last_ms = kvl_max(last_ms, m->seq[id].stamp_ms);
    return last_ms;
}

kvl_turn kvl_turn_of(const kvl_group *group, kvlazy_seq_id id)
{
    return (kvl_turn){last_use_ms(group, id), id};
}

bool kvl_turn_is_before(kvl_turn a, kvl_turn b)
{
    return a.stamp_ms != b.stamp_ms ? a.stamp_ms < b.stamp_ms : a.seq < b.seq;
}

void kvl_turns_add(kvl_turns *t, kvl_turn turn)
{
    uint32_t at = t->n++;

    for (; at && kvl_turn_is_before(turn, t->turn[(at - 1) / 2]); at = (at - 1) / 2)
        t->turn[at] = t->turn[(at - 1) / 2];
    t->turn[at] = turn;
}

kvl_turn kvl_turns_take(kvl_turns *t)
{
    kvl_turn first = t->turn[0], last = t->turn[--t->n];
    uint32_t at = 0, child;

    while ((child = 2 * at + 1) < t->n) {
        child += child + 1 < t->n && kvl_turn_is_before(t->turn[child + 1], t->turn[child]);
        if (!kvl_turn_is_before(t->turn[child], last))
            break;
        t->turn[at] = t->turn[child];
        at = child;
    }
    t->turn[at] = last;
    return first;
}

/* ------------------------------------------------------------------------------------------- what may go */

bool kvl_goes_whole(const kvl_group *group)
{
    for (const kvlazy_cache *m = group->first; m; m = m->next)
        if (m->params.shrink == KVLAZY_SHRINK_WHOLE || m->params.n_pos_per_token > 1 || kvl_has_window(m))
            return true;
    return false;
}

bool kvl_may_go_from(const kvl_group *group, kvlazy_pos pos)
{
    for (const kvlazy_cache *m = group->first; m; m = m->next)
        if (m->params.shrink == KVLAZY_SHRINK_KEEP || (uint32_t)pos < m->params.keep_tokens)
            return false;
    return true;
}

/* The lowest position that any cache of the group holds. */
static kvlazy_pos group_min(const kvl_group *group, kvlazy_seq_id id)
{
    kvlazy_pos min = INT32_MAX;

    for (kvlazy_cache *m = group->first; m; m = m->next)
        if (kvl_index_of(m, id)->n && kvl_index_min(kvl_index_of(m, id)) < min)
            min = kvl_index_min(kvl_index_of(m, id));
    return min;
}

/* Tokens of it may go at all, whenever that is. */
static bool can_lose(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_index *index = kvl_index_of(c, id);

    return index->n &&
           kvl_may_go_from(c->group, kvl_goes_whole(c->group) ? group_min(c->group, id) : kvl_index_max(index));
}

bool kvl_may_lose(kvlazy_cache *c, const kvl_goal *goal, kvlazy_seq_id id)
{
    if (!can_lose(c, id) || c->seq[id].veto_ms > goal->now_ms)
        return false;
    return (goal->kind != KVL_GOAL_IDLE && !goal->idle_only) ||
           kvl_policy_until_idle(goal->now_ms, last_use_ms(c->group, id), c->params.slot_shrink_idle_ms) == 0;
}

uint64_t kvl_evictable_in(kvlazy_cache *c, kvlazy_seq_id id, uint64_t now_ms)
{
    const kvl_seq *s = &c->seq[id];
    uint64_t until = kvl_policy_until_idle(now_ms, last_use_ms(c->group, id), c->params.slot_shrink_idle_ms);

    if (!can_lose(c, id) || until == KVL_NEVER)
        return KVL_NEVER;
    return kvl_max(until, s->veto_ms > now_ms ? s->veto_ms - now_ms : 0);
}
