/* SPDX-License-Identifier: MIT */
/* index: see index.h. */
#include "tokens/index.h"

#include <bsd/stdlib.h>

/* ------------------------------------------------------------------------------------------- runs by number */

/* The run that token i is in; one past the last for i = n. */
static uint32_t run_of(const kvl_index *x, uint32_t i)
{
    uint32_t low = 0, high = kvl_index_n_run(x);

    if (i >= x->n)
        return high;
    if (kvl_index_before(x, high - 1) <= i)
        return high - 1; /* where most work happens */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (kvl_index_before(x, middle) <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint32_t kvl_index_below(const kvl_index *x, kvlazy_pos p)
{
    uint32_t low = 0, high = kvl_index_n_run(x); /* the first run that begins at p or above lies in [low, high] */

    if (high && kvl_index_piece(x, high - 1)->pos < p)
        low = high; /* where most work happens */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (kvl_index_piece(x, middle)->pos < p)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return 0;
    uint32_t end = kvl_index_before(x, low), first = kvl_index_before(x, low - 1);
    return first + (uint32_t)kvl_min(end - first, (uint64_t)(p - kvl_index_piece(x, low - 1)->pos));
}

kvl_entry kvl_index_at(const kvl_index *x, uint32_t i)
{
    uint32_t r = run_of(x, i), offset = i - kvl_index_before(x, r);

    KVL_ASSERT(i < x->n);
    return (kvl_entry){kvl_index_piece(x, r)->pos + (kvlazy_pos)offset, kvl_index_piece(x, r)->cell + offset};
}

kvl_stretch kvl_index_run(const kvl_index *x, uint32_t begin, uint32_t end)
{
    uint32_t r = run_of(x, begin), offset = begin - kvl_index_before(x, r);

    KVL_ASSERT(begin < end && end <= x->n);
    return (kvl_stretch){kvl_index_piece(x, r)->pos + (kvlazy_pos)offset, kvl_index_piece(x, r)->cell + offset,
                         (uint32_t)kvl_min(kvl_index_before(x, r + 1), end) - begin};
}

kvl_stretch kvl_index_run_back(const kvl_index *x, uint32_t begin, uint32_t end)
{
    uint32_t first = kvl_index_before(x, run_of(x, end - 1));

    KVL_ASSERT(begin < end && end <= x->n);
    return kvl_index_run(x, (uint32_t)kvl_max(first, begin), end);
}

kvl_index_walk kvl_index_walk_from(const kvl_index *x, uint32_t begin, uint32_t end)
{
    uint32_t r = begin < end ? run_of(x, begin) : 0;

    return (kvl_index_walk){r, begin < end ? begin - kvl_index_before(x, r) : 0, begin, end};
}

/* ------------------------------------------------------------------------------------------- room */

/* What lies in front of the left runs is room too. */
static void close_front(kvl_index *x)
{
    memmove(x->piece, x->piece + x->head, x->n_left * sizeof *x->piece);
    x->head = 0;
}

static int grow(kvl_index *x, uint64_t wanted)
{
    uint64_t cap =
        wanted + wanted / 4 + KVL_SPARE_PIECES; /* more than is asked for at once, or the next one grows again */

    if (cap > UINT32_MAX)
        return KVLAZY_ENOMEM;
    kvl_piece *piece = reallocarray(x->piece, (size_t)cap, sizeof *piece);
    if (!piece)
        return KVLAZY_ENOMEM;
    x->piece = piece;
    memmove(piece + cap - x->n_right, piece + x->cap - x->n_right, x->n_right * sizeof *piece);
    x->cap = (uint32_t)cap;
    close_front(x);
    return KVLAZY_OK;
}

/* Room for one move of cells more is wanted too, so that compaction goes on for a while without memory. */
int kvl_index_reserve_slow(kvl_index *x, uint32_t n_more)
{
    uint64_t room = kvl_index_room(x), spare = room + x->head;

    /* A window that slid leaves room in front; taking it back when it is a quarter of all costs O(1) a token. */
    if (n_more + (uint64_t)KVL_SPARE_PIECES <= spare && x->head >= x->cap / 4) {
        close_front(x);
        return KVLAZY_OK;
    }
    if (!grow(x, kvl_index_n_run(x) + (uint64_t)n_more + KVL_SPARE_PIECES))
        return KVLAZY_OK;
    if (n_more > room && n_more <= spare)
        close_front(x);
    return n_more <= spare ? KVLAZY_OK : KVLAZY_ENOMEM;
}

void kvl_index_shrink(kvl_index *x)
{
    uint32_t n = kvl_index_n_run(x);

    if (n == x->cap)
        return;
    if (!n) {
        free(x->piece);
        *x = (kvl_index){0};
        return;
    }
    close_front(x);
    memmove(x->piece + x->n_left, x->piece + x->cap - x->n_right, x->n_right * sizeof *x->piece);
    kvl_piece *piece = reallocarray(x->piece, n, sizeof *piece);
    if (piece) {
        x->piece = piece;
        x->cap = n;
        return;
    }
    memmove(x->piece + x->cap - x->n_right, x->piece + x->n_left, x->n_right * sizeof *x->piece);
}

int kvl_index_copy(kvl_index *to, const kvl_index *from)
{
    *to = (kvl_index){0};
    if (!from->n)
        return KVLAZY_OK;
    to->piece = reallocarray(NULL, kvl_index_n_run(from), sizeof *to->piece);
    if (!to->piece)
        return KVLAZY_ENOMEM;
    to->cap = kvl_index_n_run(from);
    to->n_left = from->n_left;
    to->n_right = from->n_right;
    to->n = from->n;
    to->base = from->base;
    memcpy(to->piece, from->piece + from->head, from->n_left * sizeof *to->piece);
    memcpy(to->piece + from->n_left, from->piece + from->cap - from->n_right, from->n_right * sizeof *to->piece);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- at the gap */

/* The gap lies before run r. */
static void move_gap(kvl_index *x, uint32_t r)
{
    while (x->n_left < r) {
        kvl_piece p = x->piece[x->cap - x->n_right];

        p.rank = x->base + (x->n - p.rank);
        x->n_right--;
        x->piece[x->head + x->n_left++] = p;
    }
    while (x->n_left > r) {
        kvl_piece p = x->piece[x->head + --x->n_left];

        p.rank = x->n - (p.rank - x->base);
        x->piece[x->cap - ++x->n_right] = p;
    }
}

static void push_left(kvl_index *x, kvlazy_pos pos, uint32_t cell, uint32_t n_before)
{
    x->piece[x->head + x->n_left++] = (kvl_piece){pos, cell, x->base + n_before};
}

static void push_right(kvl_index *x, kvlazy_pos pos, uint32_t cell, uint32_t n_from_here)
{
    x->piece[x->cap - ++x->n_right] = (kvl_piece){pos, cell, n_from_here};
}

/* Tokens i and i - 1 are neighbours in cells and positions, and yet the gap lies between: they are one run. */
static void join_at_gap(kvl_index *x)
{
    if (!x->n_left || !x->n_right)
        return;
    const kvl_piece *left = &x->piece[x->head + x->n_left - 1], *right = &x->piece[x->cap - x->n_right];
    uint32_t n = x->n - right->rank - (left->rank - x->base);

    if (left->pos + (int64_t)n == right->pos && left->cell + (uint64_t)n == right->cell)
        x->n_right--;
}

/* Puts the gap before token i, splitting its run. Returns false where that takes a run more than there is room for,
 * `n_more` others counted. */
static bool open_at(kvl_index *x, uint32_t i, uint32_t n_more)
{
    uint32_t r = run_of(x, i), offset = i - kvl_index_before(x, r);

    if (kvl_index_room(x) < n_more + (offset > 0))
        return false;
    if (!offset) {
        move_gap(x, r);
        return true;
    }
    kvl_piece p = *kvl_index_piece(x, r);

    move_gap(x, r + 1);
    push_right(x, p.pos + (kvlazy_pos)offset, p.cell + offset, x->n - i);
    return true;
}

/* The run before run r goes on with these. */
static bool goes_on(const kvl_index *x, uint32_t r, kvl_stretch run)
{
    if (!r)
        return false;
    const kvl_piece *last = kvl_index_piece(x, r - 1);
    uint32_t n = kvl_index_before(x, r) - kvl_index_before(x, r - 1);

    return last->pos + (int64_t)n == run.pos && last->cell + (uint64_t)n == run.cell;
}

bool kvl_index_insert_run(kvl_index *x, kvl_stretch run)
{
    if (KVL_LIKELY(kvl_index_goes_on(x, run))) {
        x->n += run.n; /* where most tokens go */
        return true;
    }
    if (!x->n_right && run.pos >= kvl_index_max(x)) { /* or where several sequences take turns */
        if (!kvl_index_room(x))
            return false;
        push_left(x, run.pos, run.cell, x->n);
        x->n += run.n;
        return true;
    }
    uint32_t i = kvl_index_below(x, run.pos + 1), r = run_of(x, i);
    bool longer = kvl_index_before(x, r) == i && goes_on(x, r, run);
    if (!open_at(x, i, !longer))
        return false;
    if (!longer)
        push_left(x, run.pos, run.cell, i);
    x->n += run.n;
    join_at_gap(x);
    return true;
}

bool kvl_index_cut(kvl_index *x, uint32_t begin, uint32_t end)
{
    if (begin >= end)
        return true;
    if (end - begin == x->n) {
        kvl_index_clear(x);
        return true;
    }
    uint32_t last = run_of(x, end), offset = end - kvl_index_before(x, last), first = run_of(x, begin);

    if (begin == 0 && last < x->n_left) { /* a window slides: the gap stays where it is */
        x->head += last;
        x->n_left -= last;
        x->base += end;
        x->n -= end;
        x->piece[x->head].pos += (kvlazy_pos)offset;
        x->piece[x->head].cell += offset;
        x->piece[x->head].rank = x->base;
        return true;
    }
    if (offset && first == last && begin > kvl_index_before(x, first)) { /* out of the middle of a run */
        if (!open_at(x, end, 0))
            return false;
        x->n -= end - begin;
        return true;
    }
    first += begin > kvl_index_before(x, first);
    if (x->n_left < first || x->n_left > last)
        move_gap(x, x->n_left < first ? first : last);
    x->n_right -= last - x->n_left; /* what goes lies around the gap, and need not be moved to one side first */
    x->n_left = first;
    x->n -= end - begin;
    if (offset) {
        kvl_piece *p = &x->piece[x->cap - x->n_right];

        p->pos += (kvlazy_pos)offset;
        p->cell += offset;
        p->rank -= offset;
    }
    join_at_gap(x);
    return true;
}

/* ------------------------------------------------------------------------------------------- by token */

uint32_t kvl_index_find(const kvl_index *x, kvlazy_pos pos, uint32_t cell)
{
    uint32_t end = kvl_index_below(x, pos + 1);

    for (uint32_t i = kvl_index_below(x, pos); i < end; i++)
        if (kvl_index_at(x, i).cell == cell)
            return i;
    return x->n;
}

/* The tokens from the first of `run` on that stand behind one another here: *i is the number of the first. */
static uint32_t found_run(const kvl_index *x, kvl_stretch run, uint32_t *i)
{
    *i = kvl_index_find(x, run.pos, run.cell);
    KVL_ASSERT(*i < x->n);
    return *i < x->n ? (uint32_t)kvl_min(kvl_index_run(x, *i, x->n).n, run.n) : 0;
}

bool kvl_index_remove_run(kvl_index *x, kvl_stretch run)
{
    uint32_t i, n;

    for (; run.n; run = (kvl_stretch){run.pos + (kvlazy_pos)n, run.cell + n, run.n - n}) {
        n = found_run(x, run, &i);
        if (!n || !kvl_index_cut(x, i, i + n))
            return false;
    }
    return true;
}

/* Of equal positions it stays where it stands. */
bool kvl_index_rename_run(kvl_index *x, kvl_stretch run, uint32_t to)
{
    uint32_t i, n;

    for (; run.n; run = (kvl_stretch){run.pos + (kvlazy_pos)n, run.cell + n, run.n - n}, to += n) {
        n = found_run(x, run, &i);
        if (!n || kvl_index_room(x) < 2 || !open_at(x, i + n, 0) || !open_at(x, i, 0))
            return false;
        x->piece[x->cap - x->n_right].cell = to;
        join_at_gap(x);
        move_gap(x, run_of(x, i + n));
        join_at_gap(x);
    }
    return true;
}

/* ------------------------------------------------------------------------------------------- check */

const char *kvl_index_check(const kvl_index *x)
{
    uint32_t n_run = kvl_index_n_run(x);

    if ((uint64_t)x->head + n_run > x->cap)
        return "index runs, room";
    if (!n_run || !x->n)
        return n_run != x->n ? "index tokens without runs, runs" : NULL;
    if (kvl_index_before(x, 0) != 0)
        return "index tokens before the first run";
    for (uint32_t r = 0; r < n_run; r++) {
        uint32_t begin = kvl_index_before(x, r), end = kvl_index_before(x, r + 1);

        if (end <= begin || end > x->n)
            return "index run without tokens";
        if (r + 1 < n_run &&
            kvl_index_piece(x, r + 1)->pos < kvl_index_piece(x, r)->pos + (kvlazy_pos)(end - begin) - 1)
            return "index order";
    }
    return NULL;
}
