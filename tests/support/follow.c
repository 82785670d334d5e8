/* SPDX-License-Identifier: MIT */
/* See follow.h. */
#include "follow.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "owners.h"
#include "support.h"

enum { FAMILY = 8, TAKEN = -2, MATES = 64 };

int __real_kvlazy_poll(kvlazy_cache *, uint64_t *);
int __real_kvlazy_trim(kvlazy_cache *, uint32_t);
int __real_kvlazy_set_limits(kvlazy_cache *, uint32_t, uint32_t, uint64_t);
int __real_kvlazy_init_batch(kvlazy_cache *);
int __real_kvlazy_prepare(kvlazy_cache *, const kvlazy_ubatch *, uint32_t, kvlazy_slot *);
int __real_kvlazy_end_batch(kvlazy_cache *);
int __real_kvlazy_clear(kvlazy_cache *, bool);
int __wrap_kvlazy_poll(kvlazy_cache *, uint64_t *);
int __wrap_kvlazy_trim(kvlazy_cache *, uint32_t);
int __wrap_kvlazy_set_limits(kvlazy_cache *, uint32_t, uint32_t, uint64_t);
int __wrap_kvlazy_init_batch(kvlazy_cache *);
int __real_kvlazy_prepare_restore(kvlazy_cache *, const kvlazy_ubatch *, uint32_t, kvlazy_slot *);
int __wrap_kvlazy_prepare_restore(kvlazy_cache *, const kvlazy_ubatch *, uint32_t, kvlazy_slot *);
int __wrap_kvlazy_prepare(kvlazy_cache *, const kvlazy_ubatch *, uint32_t, kvlazy_slot *);
int __wrap_kvlazy_end_batch(kvlazy_cache *);
int __wrap_kvlazy_clear(kvlazy_cache *, bool);
int __real_kvlazy_seq_cp(kvlazy_cache *, kvlazy_seq_id, kvlazy_seq_id, kvlazy_pos, kvlazy_pos);
int __wrap_kvlazy_seq_cp(kvlazy_cache *, kvlazy_seq_id, kvlazy_seq_id, kvlazy_pos, kvlazy_pos);
int __real_kvlazy_touch(kvlazy_cache *, uint32_t, uint32_t);
int __wrap_kvlazy_touch(kvlazy_cache *, uint32_t, uint32_t);
int __real_kvlazy_touch_cells(kvlazy_cache *, uint32_t, const uint32_t *, uint32_t);
int __wrap_kvlazy_touch_cells(kvlazy_cache *, uint32_t, const uint32_t *, uint32_t);
int __real_kvlazy_copy_cells(kvlazy_cache *, uint32_t, uint32_t, uint32_t, uint32_t);
int __wrap_kvlazy_copy_cells(kvlazy_cache *, uint32_t, uint32_t, uint32_t, uint32_t);
int __real_kvlazy_pool_set_budget(kvlazy_pool *, uint64_t);
int __wrap_kvlazy_pool_set_budget(kvlazy_pool *, uint64_t);

/* ---- the rigs there are ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list alone */
static struct rig *first;
static int last_family;

static struct rig *find(const kvlazy_cache *cache)
{
    struct rig *rig = first;

    while (rig && rig->cache != cache)
        rig = rig->next;
    return rig;
}

static struct rig *rig_of(const kvlazy_cache *cache)
{
    struct rig *rig;

    pthread_mutex_lock(&lock);
    rig = cache ? find(cache) : NULL;
    pthread_mutex_unlock(&lock);
    return rig;
}

/* Those linked to one, itself among them. */
static int family_of(const struct rig *rig, struct rig *all[FAMILY])
{
    int n = 0;

    pthread_mutex_lock(&lock);
    for (struct rig *r = first; r && n < FAMILY; r = r->next)
        if (r->family == rig->family)
            all[n++] = r;
    pthread_mutex_unlock(&lock);
    return n;
}

static void *some(size_t n, size_t bytes)
{
    void *p = calloc(n + 1, bytes);

    assert_non_null(p);
    return p;
}

/* All the room is taken here, so that nothing of this shows where allocations are counted. */
void rig_follows(struct rig *rig)
{
    size_t n = (size_t)rig->n_stream * rig->kv_size;
    struct rig_seen *seen = &rig->seen;
    const struct rig *with;

    rig_forgets(rig);
    rig->stamp = some(n, sizeof *rig->stamp);
    seen->owner_words = (rig->n_seq + 63) / 64;
    seen->pos = some(n, sizeof *seen->pos);
    seen->shift = some(n, sizeof *seen->shift);
    seen->y = some(n, sizeof *seen->y);
    seen->x = some(n, sizeof *seen->x);
    seen->owner = some(n * seen->owner_words, sizeof *seen->owner);
    seen->stamp = some(n, sizeof *seen->stamp);
    seen->stayed = some(rig->kv_size, sizeof *seen->stayed);
    pthread_mutex_lock(&lock);
    with = rig->params.with ? find(rig->params.with) : NULL;
    rig->family = with ? with->family : ++last_family;
    rig->next = first;
    first = rig;
    pthread_mutex_unlock(&lock);
}

void rig_forgets(struct rig *rig)
{
    struct rig **at = &first;

    pthread_mutex_lock(&lock);
    while (*at && *at != rig)
        at = &(*at)->next;
    if (*at)
        *at = rig->next;
    pthread_mutex_unlock(&lock);
    free(rig->seen.pos);
    free(rig->seen.shift);
    free(rig->seen.y);
    free(rig->seen.x);
    free(rig->seen.owner);
    free(rig->seen.stamp);
    free(rig->seen.stayed);
    free(rig->stamp);
    rig->stamp = NULL;
    rig->seen = (struct rig_seen){.fresh = false};
}

/* ---- looking ---- */

static kvlazy_cells_view view_of(struct rig *rig, uint32_t stream)
{
    kvlazy_cells_view view = {.struct_size = sizeof view};

    if (rig->params.cell_ops)
        return view; /* the engine's cells are for the test to look at */
    ok(kvlazy_cells(rig->cache, stream, &view));
    assert_true(view.n_cell <= rig->kv_size);
    return view;
}

static void look_at_stream(struct rig *rig, uint32_t s)
{
    const kvlazy_cells_view view = view_of(rig, s);
    struct rig_seen *seen = &rig->seen;
    size_t base = (size_t)s * rig->kv_size;

    for (uint32_t c = 0; c < rig->kv_size; c++)
        seen->pos[base + c] = c < view.n_cell ? view.pos[c] : -1;
    for (uint32_t c = 0; c < view.n_cell; c++) {
        seen->shift[base + c] = view.shift ? view.shift[c] : 0;
        seen->y[base + c] = view.ext_y ? view.ext_y[c] : 0;
        seen->x[base + c] = view.ext_x ? view.ext_x[c] : 0;
        owner_words(rig->cache, s, c, &seen->owner[(base + c) * seen->owner_words], seen->owner_words);
    }
}

static void look(struct rig *rig)
{
    for (uint32_t s = 0; s < rig->n_stream; s++)
        look_at_stream(rig, s);
    memcpy(rig->seen.stamp, rig->stamp, (size_t)rig->n_stream * rig->kv_size * sizeof *rig->stamp);
    rig->seen.fresh = true;
}

static void saw_nothing(struct rig *rig)
{
    size_t n = (size_t)rig->n_stream * rig->kv_size;

    for (size_t i = 0; i < n; i++)
        rig->seen.pos[i] = -1;
    memcpy(rig->seen.stamp, rig->stamp, n * sizeof *rig->stamp);
    rig->seen.fresh = true;
}

/* ---- following ---- */

static bool holds_at(struct rig *rig, uint32_t s, const kvlazy_cells_view *view, uint32_t seq, kvlazy_pos pos)
{
    for (uint32_t c = 0; c < view->n_cell; c++)
        if (view->pos[c] == pos && is_owner(rig->cache, s, c, seq))
            return true;
    return false;
}

/* An owner may have lost the token meanwhile, and then all it had at that position; none may have come. */
static bool owned_as_seen(struct rig *rig, uint32_t s, const kvlazy_cells_view *view, uint32_t c, size_t at)
{
    const struct rig_seen *seen = &rig->seen;
    uint64_t now[1024];

    owner_words(rig->cache, s, c, now, seen->owner_words);
    for (uint32_t w = 0; w < seen->owner_words; w++) {
        uint64_t has = now[w], had = seen->owner[at * seen->owner_words + w];

        if (has & ~had)
            return false;
        for (uint32_t bit = 0; has != had && bit < 64; bit++)
            if ((had & ~has) >> bit & 1 && holds_at(rig, s, view, w * 64 + bit, view->pos[c]))
                return false;
    }
    return true;
}

static bool same_token(struct rig *rig, uint32_t s, const kvlazy_cells_view *view, uint32_t c, size_t at)
{
    const struct rig_seen *seen = &rig->seen;

    return view->pos[c] == seen->pos[at] && (view->shift ? view->shift[c] : 0) == seen->shift[at] &&
           (view->ext_y ? view->ext_y[c] : 0) == seen->y[at] && (view->ext_x ? view->ext_x[c] : 0) == seen->x[at] &&
           owned_as_seen(rig, s, view, c, at);
}

/* Of several that are alike, with a position that repeats, any may have come: the bytes tell which. */
static bool came_from_above(struct rig *rig, const kvlazy_cells_view *view, uint32_t s, uint32_t c)
{
    struct rig_seen *seen = &rig->seen;
    size_t base = (size_t)s * rig->kv_size;

    for (uint32_t from = c + 1; from < rig->kv_size; from++) {
        if (seen->pos[base + from] != view->pos[c] || !same_token(rig, s, view, c, base + from) ||
            !rig_row_fits(rig, s, c, seen->stamp[base + from], true))
            continue;
        seen->pos[base + from] = TAKEN;
        rig->stamp[base + c] = seen->stamp[base + from];
        return true;
    }
    return false;
}

/* Moved, and dead by now, with a hook in a hurry before its bytes went. */
static void came_and_went(struct rig *rig, uint32_t s, uint32_t c)
{
    size_t base = (size_t)s * rig->kv_size;

    if (rig_row_fits(rig, s, c, rig->stamp[base + c], false))
        return;
    for (uint32_t from = c + 1; from < rig->kv_size; from++)
        if (rig->seen.pos[base + from] >= 0 && rig_row_fits(rig, s, c, rig->seen.stamp[base + from], false)) {
            rig->stamp[base + c] = rig->seen.stamp[base + from];
            return;
        }
}

static void follow_stream(struct rig *rig, uint32_t s)
{
    const kvlazy_cells_view view = view_of(rig, s);
    struct rig_seen *seen = &rig->seen;
    size_t base = (size_t)s * rig->kv_size;
    bool *stayed = seen->stayed;

    for (uint32_t c = 0; c < view.n_cell; c++) {
        stayed[c] = view.pos[c] >= 0 && same_token(rig, s, &view, c, base + c);
        if (stayed[c])
            seen->pos[base + c] = TAKEN;
    }
    for (uint32_t c = 0; c < view.n_cell; c++)
        if (view.pos[c] >= 0 && !stayed[c] && !came_from_above(rig, &view, s, c)) {
            print_error("stream %" PRIu32 ": cell %" PRIu32
                        " holds position %d, and no cell above lost it, or not with these bytes\n",
                        s, c, (int)view.pos[c]);
            fail();
        }
    for (uint32_t c = 0; rig->beside && c < rig->reach; c++)
        if (c >= view.n_cell || view.pos[c] < 0)
            came_and_went(rig, s, c);
}

static void follow(struct rig *rig)
{
    for (uint32_t s = 0; s < rig->n_stream && rig->seen.fresh; s++)
        follow_stream(rig, s);
    rig->seen.fresh = false;
}

void rig_look(struct rig *rig)
{
    struct rig *all[FAMILY];

    for (int i = 0, n = family_of(rig, all); i < n; i++)
        look(all[i]);
}

void rig_follow(struct rig *rig)
{
    struct rig *all[FAMILY];

    for (int i = 0, n = family_of(rig, all); i < n; i++)
        follow(all[i]);
}

void rig_alone(struct rig *rig)
{
    struct rig *all[FAMILY];

    rig_follow(rig);
    for (int i = 0, n = family_of(rig, all); i < n; i++)
        all[i]->beside = false;
}

/* ---- the calls ---- */

/* Before a call that shrinks; what to hand to `after`. */
static struct rig *before(kvlazy_cache *cache)
{
    struct rig *rig = rig_of(cache);

    if (!rig || rig->beside)
        return NULL;
    rig_look(rig);
    return rig;
}

static int after(struct rig *rig, int status)
{
    if (rig)
        rig_follow(rig);
    return status;
}

int __wrap_kvlazy_poll(kvlazy_cache *cache, uint64_t *next_ms)
{
    struct rig *rig = before(cache);

    return after(rig, __real_kvlazy_poll(cache, next_ms));
}

int __wrap_kvlazy_trim(kvlazy_cache *cache, uint32_t max_cells)
{
    struct rig *rig = before(cache);

    return after(rig, __real_kvlazy_trim(cache, max_cells));
}

int __wrap_kvlazy_set_limits(kvlazy_cache *cache, uint32_t initial, uint32_t idle_ms, uint64_t budget_bytes)
{
    struct rig *rig = before(cache);

    return after(rig, __real_kvlazy_set_limits(cache, initial, idle_ms, budget_bytes));
}

/* Beside other threads: the last look that nobody can have spoilt is one inside the batch. */
static struct rig *look_beside(kvlazy_cache *cache)
{
    struct rig *rig = rig_of(cache);

    if (!rig || !rig->beside)
        return NULL;
    if (!rig->seen.fresh)
        rig_look(rig);
    return rig;
}

int __wrap_kvlazy_init_batch(kvlazy_cache *cache)
{
    struct rig *beside = look_beside(cache), *rig = beside ? beside : before(cache);

    return after(rig, __real_kvlazy_init_batch(cache));
}

/* Others of a pool may be shrunk by a call that lacks room; the cache itself changes in ways of its own. */
struct mates {
    struct rig *rig[MATES];
    int n;
};

static struct mates mates_in(const kvlazy_pool *pool, int but_family)
{
    struct mates mates = {.n = 0};

    pthread_mutex_lock(&lock);
    for (struct rig *r = first; r && mates.n < MATES; r = r->next)
        if (pool && r->params.pool == pool && r->family != but_family && !r->beside)
            mates.rig[mates.n++] = r;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < mates.n; i++)
        look(mates.rig[i]);
    return mates;
}

static struct mates look_at_mates(const struct rig *rig)
{
    return rig ? mates_in(rig->params.pool, rig->family) : (struct mates){.n = 0};
}

static void follow_mates(struct mates *mates)
{
    for (int i = 0; i < mates->n; i++)
        follow(mates->rig[i]);
}

int __wrap_kvlazy_seq_cp(kvlazy_cache *cache, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    struct mates mates = look_at_mates(rig_of(cache));
    int status = __real_kvlazy_seq_cp(cache, src, dst, p0, p1);

    follow_mates(&mates);
    return status;
}

int __wrap_kvlazy_touch(kvlazy_cache *cache, uint32_t stream, uint32_t end)
{
    struct mates mates = look_at_mates(rig_of(cache));
    int status = __real_kvlazy_touch(cache, stream, end);

    follow_mates(&mates);
    return status;
}

int __wrap_kvlazy_touch_cells(kvlazy_cache *cache, uint32_t stream, const uint32_t *cell, uint32_t n)
{
    struct mates mates = look_at_mates(rig_of(cache));
    int status = __real_kvlazy_touch_cells(cache, stream, cell, n);

    follow_mates(&mates);
    return status;
}

int __wrap_kvlazy_copy_cells(kvlazy_cache *cache, uint32_t src, uint32_t dst, uint32_t from, uint32_t n)
{
    struct mates mates = look_at_mates(rig_of(cache));
    int status = __real_kvlazy_copy_cells(cache, src, dst, from, n);

    follow_mates(&mates);
    return status;
}

int __wrap_kvlazy_pool_set_budget(kvlazy_pool *pool, uint64_t budget_bytes)
{
    struct mates mates = mates_in(pool, -1);
    int status = __real_kvlazy_pool_set_budget(pool, budget_bytes);

    follow_mates(&mates);
    return status;
}

typedef int (*prepares)(kvlazy_cache *, const kvlazy_ubatch *, uint32_t, kvlazy_slot *);

static int follow_prepare(prepares prepare, kvlazy_cache *cache, const kvlazy_ubatch *ubatch, uint32_t n_ubatch,
                          kvlazy_slot *slots)
{
    struct rig *rig = look_beside(cache), *all[FAMILY];
    struct mates mates = look_at_mates(rig_of(cache));
    int status = prepare(cache, ubatch, n_ubatch, slots);

    follow_mates(&mates);

    for (int i = 0, n = rig && !status ? family_of(rig, all) : 0; i < n; i++)
        all[i]->seen.fresh = false; /* the batch is open still, and will change cells */
    return status;
}

int __wrap_kvlazy_prepare(kvlazy_cache *cache, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots)
{
    return follow_prepare(__real_kvlazy_prepare, cache, ubatch, n_ubatch, slots);
}

int __wrap_kvlazy_prepare_restore(kvlazy_cache *cache, const kvlazy_ubatch *ubatch, uint32_t n_ubatch,
                                  kvlazy_slot *slots)
{
    return follow_prepare(__real_kvlazy_prepare_restore, cache, ubatch, n_ubatch, slots);
}

int __wrap_kvlazy_end_batch(kvlazy_cache *cache)
{
    look_beside(cache);
    return __real_kvlazy_end_batch(cache);
}

/* No batch is open after it, so that a look would not be safe from other threads; nor is there anything to see. */
int __wrap_kvlazy_clear(kvlazy_cache *cache, bool data)
{
    struct rig *rig = rig_of(cache), *all[FAMILY];
    int status = __real_kvlazy_clear(cache, data);

    for (int i = 0, n = rig && rig->beside && !status ? family_of(rig, all) : 0; i < n; i++)
        saw_nothing(all[i]);
    return status;
}
