/* SPDX-License-Identifier: MIT */
/* ahead: see ahead.h. */
#include "core/ahead.h"
#include "core/budget.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/lock.h"

enum {
    AHEAD_CELLS = 32,
    AHEAD_BYTES = 4 << 20,
    PAGE_CELLS = 16,
    PIECE_BYTES = 1 << 20, /* that a watcher makes present at a time: a millisecond or less */
};

/* ------------------------------------------------------------------------------------------- steady decode */

/* A cell may be a block of tokens, or have rows of many pages: then fewer of them are worth the memory, or none. */
static uint32_t most_ahead(const kvl_geometry *geometry)
{
    return (uint32_t)kvl_min(AHEAD_CELLS, AHEAD_BYTES / kvl_max(geometry->cell_bytes, 1));
}

/* Where a page holds many cells, those to the end of it cost nothing more, and one beyond a page in every tensor. */
static uint32_t worth_ahead(const kvl_rows *rows, const kvl_run *run)
{
    const kvl_geometry *g = &rows->geometry;
    uint32_t most = most_ahead(g);
    bool many = rows->page.flags && g->n_host;

    for (const kvl_tensor *t = g->tensor; many && t < g->tensor + g->n_host; t++)
        many = t->cell_stride * PAGE_CELLS <= g->page_bytes;
    return many ? (uint32_t)kvl_min(most, kvl_geometry_cells_beside(g, run->stream, run->begin)) : most;
}

/* The only token of its stream in this ubatch. */
static bool is_alone(const kvl_run *run, uint32_t i, uint32_t n_run)
{
    return run[i].end - run[i].begin == 1 && (!i || run[i - 1].stream != run[i].stream) &&
           (i + 1 == n_run || run[i + 1].stream != run[i].stream);
}

/* Steady decode, one token a batch: some cells more are made ready, so that most tokens find their pages there. They
 * count like cells that just emptied. Only cells right behind, which hold nothing, in arrays that are there; and only
 * for a batch of one ubatch, so that no page is taken that was planned for another. */
static uint32_t cells_ahead(kvlazy_cache *c, const kvl_run *run)
{
    kvl_stream *stream = &c->stream[run->stream];
    uint32_t end = (uint32_t)kvl_min((uint64_t)run->end + worth_ahead(&c->rows, run), c->params.kv_size);

    if (!c->rows.commits_ahead || c->plan.n_ubatch > 1 || stream->n_single < 2 || stream->n_applied ||
        kvl_cells_reserve(&stream->cells, end))
        return 0;
    return (uint32_t)kvl_bits_next(stream->cells.used, run->end, end, true) - run->end;
}

bool kvl_ahead_reach(kvlazy_cache *c, kvl_run *run, uint32_t n_run)
{
    uint32_t n_ahead = 0;

    for (uint32_t i = 0; i < n_run; i++) {
        uint32_t n = is_alone(run, i, n_run) ? cells_ahead(c, &run[i]) : 0;

        n_ahead += n;
        run[i].end += n;
    }
    return n_ahead > 0;
}

/* The gathered pages may become touched: no limit speaks against it. */
static bool may_touch(kvlazy_cache *c)
{
    return !kvl_has_limited_twin(c) && /* the exact plan was checked against it */
           kvl_limits_take(c, kvl_rows_touched(&c->rows) + kvl_rows_gathered(&c->rows));
}

/* Cells that hold a token stay as they are. */
static void note_ahead(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    uint64_t now_ms = kvl_now(c);

    for (uint32_t i = 0; i < n_run; i++)
        kvl_cells_ahead(&c->stream[run[i].stream].cells, run[i].begin, run[i].end, now_ms);
    kvl_note_fallow(c, now_ms);
}

bool kvl_ahead_touch(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    if (kvl_rows_want(&c->rows, run, n_run) || !may_touch(c) || kvl_rows_touch(&c->rows, run, n_run))
        return false;
    note_ahead(c, run, n_run);
    return true;
}

/* ------------------------------------------------------------------------------------------- beside the engine */

/* The engine asked for it, and a watcher may come while it computes. */
static bool is_asked_for(const kvlazy_cache *c)
{
    return KVL_UNLIKELY(c->params.flags & KVLAZY_UBATCH_AHEAD) && c->group->watcher && !kvl_is_bound_to_thread(c);
}

/* It is a call to the host that tells: the watcher's thread may be in another process. */
static bool is_watched(kvlazy_cache *c)
{
    kvl_adopt(c);
    return c->group->watcher;
}

bool kvl_ahead_leaves(kvlazy_cache *c)
{
    return is_asked_for(c) && !(c->params.flags & KVLAZY_COMMIT_AHEAD) &&
           kvl_rows_gathered(&c->rows) * kvl_rows_page_bytes(&c->rows) >= PIECE_BYTES && is_watched(c);
}

static void pass_ubatch(kvl_plan_ahead *at)
{
    *at = (kvl_plan_ahead){.ubatch = at->ubatch + 1, .ubatch_end = at->ubatch_end};
}

/* Moves past ubatches whose pages are there. Returns whether one is left. */
static bool has_more(kvl_plan *p)
{
    kvl_plan_ahead *at = &p->ahead;

    while (at->ubatch < at->ubatch_end && p->ubatch[at->ubatch].applied && !p->ubatch[at->ubatch].left)
        pass_ubatch(at);
    return at->ubatch < at->ubatch_end;
}

void kvl_ahead_expect(kvlazy_cache *c, const kvl_plan_ubatch *applied)
{
    kvl_plan *p = &c->plan;
    uint32_t now = (uint32_t)(applied - p->ubatch);

    if (!is_asked_for(c) || !c->rows.geometry.n_host)
        return;
    if (p->ahead.ubatch < now)
        p->ahead = (kvl_plan_ahead){.ubatch = now};
    p->ahead.ubatch_end = (uint32_t)kvl_min((uint64_t)now + 2, p->n_ubatch);
    if (has_more(p) && is_watched(c))
        c->group->watcher->wake(c->group->watcher->ctx, 0);
}

/* Tokens whose rows in one tensor are a piece. */
static uint32_t piece_tokens(const kvl_geometry *g)
{
    return (uint32_t)kvl_min(kvl_max(PIECE_BYTES * g->n_host / kvl_max(g->cell_bytes, 1), 1), UINT32_MAX);
}

/* The pages of some tokens in one tensor: of a ubatch that was applied they are touched; those of the next one become
 * so, where no limit speaks against it. Returns how many were made present; UINT64_MAX: there is no room for them. */
static uint64_t make_present(kvlazy_cache *c, const kvl_tensor *tensor, bool applied, uint32_t token,
                             uint32_t token_end)
{
    kvl_plan *p = &c->plan;
    uint32_t n_run = kvl_plan_runs(p, token, token_end);
    int status = kvl_rows_find(&c->rows, tensor, p->run, n_run, applied);
    uint64_t n_page = kvl_rows_gathered(&c->rows);

    if (status)
        return UINT64_MAX;
    if (!n_page)
        return 0;
    if (applied)
        return kvl_rows_bring(&c->rows) ? UINT64_MAX : n_page;
    if (!may_touch(c) || kvl_rows_make_present(&c->rows, p->run, n_run))
        return UINT64_MAX;
    note_ahead(c, p->run, n_run);
    return n_page;
}

/* Of one ubatch, tensor by tensor, since engines write the rows of a layer when they compute it. Returns whether there
 * is more. */
static bool next_piece(kvlazy_cache *c)
{
    const kvl_geometry *g = &c->rows.geometry;
    kvl_plan_ahead *at = &c->plan.ahead;
    const kvl_plan_ubatch *b = &c->plan.ubatch[at->ubatch];
    uint64_t n_left = kvl_max(PIECE_BYTES / g->page_bytes, 1);

    while (n_left && at->tensor < g->n_host) {
        uint32_t token = b->token_begin + at->token;
        uint32_t token_end = (uint32_t)kvl_min((uint64_t)token + piece_tokens(g), b->token_end);
        uint64_t n_page = make_present(c, &g->tensor[at->tensor], b->applied, token, token_end);

        if (n_page == UINT64_MAX) { /* apply does what it can, or writing faults */
            *at = (kvl_plan_ahead){0};
            return false;
        }
        n_left -= kvl_min(n_left, n_page);
        at->token = token_end < b->token_end ? token_end - b->token_begin : 0;
        if (!at->token)
            at->tensor++;
    }
    if (at->tensor == g->n_host)
        pass_ubatch(at);
    return has_more(&c->plan);
}

/* The next pages of a cache are those of the ubatch that is computed, or of the one after it. */
static bool is_next(kvlazy_cache *c, bool computed)
{
    return c->plan.batch == c->group->n_opened && has_more(&c->plan) &&
           c->plan.ubatch[c->plan.ahead.ubatch].applied == computed;
}

/* What the engine computes comes first, in all linked caches. */
bool kvl_ahead_piece(kvl_group *group)
{
    for (int k = 0; k < 2; k++)
        for (kvlazy_cache *m = group->first; m; m = m->next)
            if (is_next(m, k == 0) && next_piece(m))
                return true;
    return false;
}
