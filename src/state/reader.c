/* SPDX-License-Identifier: MIT */
/*
 * reader: see reader.h. A target is what is read for one of the linked caches. Metadata comes first, and is kept; rows
 * pass through the buffer. Memory grows with what arrives, not with what is announced.
 */
#include "state/reader.h"
#include "core/batch.h"
#include "core/cap.h"
#include "core/clock.h"
#include "core/hold.h"
#include "core/limits.h"

#include <bsd/stdlib.h>

typedef struct target {
    kvlazy_cache *cache;
    kvl_state_shape shape;
    kvl_state_seq *seq; /* [shape.n_seq] */
    kvlazy_pos *pos;    /* [shape.n_token] */
    kvlazy_pos *plane;  /* [2 · shape.n_token] y, then x; none with one plane */
    uint32_t *owner;    /* as in the format; NULL: one sequence */
    uint32_t n_skip;    /* the first so many tokens are not taken: their sequence does not see them any more */
    kvl_hold hold;      /* of the others */
} target;

typedef struct reader {
    kvl_state_io io;
    kvlazy_seq_id seq;
    kvl_state_head head;
    uint32_t n_target;
    target *target; /* [n_target] */
} reader;

/* ------------------------------------------------------------------------------------------- bytes that come */

enum { FIRST_BYTES = 1 << 14 };

/* So many bytes become an array, whose room doubles as they arrive. *array is to be freed, after an error too. */
static int get_array(reader *r, void **array, uint64_t bytes)
{
    uint64_t room = kvl_min(bytes, FIRST_BYTES), have = 0;

    *array = malloc((size_t)kvl_max(room, 1));
    if (!*array || bytes > PTRDIFF_MAX)
        return KVLAZY_ENOMEM;
    for (;;) {
        uint64_t n = kvl_min(room - have, KVL_ROWS_PIECE_BYTES);
        int status = kvl_state_pass_bytes(&r->io, (char *)*array + have, (size_t)n);

        have += n;
        if (status || have == bytes)
            return status;
        if (have < room)
            continue;
        room = kvl_min(bytes, 2 * room);
        void *grown = realloc(*array, (size_t)room);
        if (!grown)
            return KVLAZY_ENOMEM;
        *array = grown;
    }
}

static int get_section(reader *r, uint32_t name, void **array, uint64_t bytes)
{
    int status = kvl_state_get_frame(&r->io, name, bytes);

    if (!status)
        status = get_array(r, array, bytes);
    return status ? status : kvl_state_get_checksum(&r->io);
}

/* ------------------------------------------------------------------------------------------- head and note */

/* Bytes of a note that nobody wants pass through the buffer. */
static int skip_bytes(reader *r, uint64_t bytes)
{
    int status = KVLAZY_OK;

    for (uint64_t n; !status && bytes; bytes -= n) {
        n = kvl_min(bytes, KVL_ROWS_PIECE_BYTES);
        status = kvl_state_pass_bytes(&r->io, r->io.buffer, (size_t)n);
    }
    return status;
}

static int get_note(reader *r)
{
    const kvl_state_ends *ends = r->io.ends;
    uint64_t bytes = r->head.note_bytes;

    if (ends->note_is && ends->note_bytes < bytes) {
        *ends->note_is = (size_t)bytes;
        return KVLAZY_EINVAL;
    }
    int status = kvl_state_get_frame(&r->io, KVL_STATE_NOTE, bytes);
    if (!status)
        status = ends->note_is ? kvl_state_pass_bytes(&r->io, ends->note, (size_t)bytes) : skip_bytes(r, bytes);
    return status ? status : kvl_state_get_checksum(&r->io);
}

static int get_head(reader *r)
{
    uint32_t kind = r->seq < 0 ? KVL_STATE_CACHE : KVL_STATE_SEQUENCE;
    int status = kvl_state_pass_raw(&r->io, &r->head, sizeof r->head);

    if (!status)
        status = kvl_state_refuse(&r->io, kvl_state_check_head(&r->head, kind, r->n_target));
    return status ? status : get_note(r);
}

/* ------------------------------------------------------------------------------------------- tokens */

static int get_shape(reader *r, target *t)
{
    kvl_state_shape here = kvl_state_shape_of(t->cache);
    int status = kvl_state_get_frame(&r->io, KVL_STATE_SHAPE, kvl_state_shape_bytes(&here));

    if (!status)
        status = kvl_state_pass_bytes(&r->io, &t->shape, sizeof t->shape);
    if (!status)
        status = kvl_state_refuse(&r->io, kvl_state_check_shape(t->cache, &t->shape, r->head.kind));
    for (const kvl_tensor *k = NULL; !status && (k = kvl_state_next_tensor(&t->cache->rows.geometry, k));) {
        kvl_state_tensor tensor = {0};

        status = kvl_state_pass_bytes(&r->io, &tensor, sizeof tensor);
        if (!status)
            status = kvl_state_refuse(&r->io, kvl_state_check_tensor(&tensor, k));
    }
    if (!status)
        status = kvl_state_get_checksum(&r->io);
    uint64_t n_most = (uint64_t)t->cache->params.kv_size * (r->seq < 0 ? t->cache->params.n_stream : 1);
    return status ? status : t->shape.n_token > n_most ? KVLAZY_ENOSLOT : KVLAZY_OK;
}

static int get_seqs(reader *r, target *t)
{
    int status = get_section(r, KVL_STATE_SEQS, (void **)&t->seq, t->shape.n_seq * (uint64_t)sizeof *t->seq);

    for (uint32_t i = 0; !status && i < t->shape.n_seq; i++)
        status = kvl_state_refuse(
            &r->io, kvl_state_check_seq(t->cache, &t->seq[i], r->head.kind, i ? t->seq[i - 1].seq + 1 : 0));
    return status;
}

static int check_tokens(reader *r, target *t)
{
    kvl_state_seen *seen = calloc(t->cache->params.n_seq_max, sizeof *seen);

    if (!seen)
        return KVLAZY_ENOMEM;
    int status = kvl_state_refuse(&r->io, kvl_state_check_tokens(t->cache, &t->shape, t->seq, t->pos, t->owner, seen));
    free(seen);
    return status;
}

static int get_tokens(reader *r, target *t)
{
    int status = get_shape(r, t);

    if (!status)
        status = get_seqs(r, t);
    if (!status)
        status = get_section(r, KVL_STATE_POSITIONS, (void **)&t->pos, t->shape.n_token * (uint64_t)sizeof *t->pos);
    if (!status)
        status = get_section(r, KVL_STATE_PLANES, (void **)&t->plane, kvl_state_planes_bytes(&t->shape));
    if (!status)
        status = get_section(r, KVL_STATE_OWNERS, (void **)&t->owner, kvl_state_owners_bytes(&t->shape, r->head.kind));
    if (!status && r->seq >= 0) {
        free(t->owner);
        t->owner = NULL;
    }
    return status ? status : check_tokens(r, t);
}

static int get_metadata(reader *r)
{
    int status = get_head(r);
    uint64_t bytes = sizeof r->head + kvl_state_section_bytes(r->head.note_bytes);

    for (uint32_t i = 0; !status && i < r->n_target; i++) {
        status = get_tokens(r, &r->target[i]);
        if (!status)
            bytes += kvl_state_cache_bytes(r->target[i].cache, &r->target[i].shape, r->head.kind);
    }
    if (!status && bytes != r->head.total_bytes)
        status = kvl_state_refuse(&r->io, (kvl_state_fault){"bytes of the state", r->head.total_bytes, bytes});
    return status;
}

/* ------------------------------------------------------------------------------------------- cells */

/* The owners of token after token: the first of the next, and how many. */
typedef struct owners {
    const uint32_t *at;
    uint32_t alone[2];
} owners;

static owners owners_of(const reader *r, const target *t)
{
    return (owners){t->owner, {1, (uint32_t)r->seq}};
}

static const uint32_t *next_owners(owners *o, uint32_t *n)
{
    const uint32_t *at = o->at ? o->at : o->alone;

    if (o->at)
        o->at += at[0] + 1;
    *n = at[0];
    return at + 1;
}

static kvlazy_seq_id id_of(const reader *r, const kvl_state_seq *seq)
{
    return r->seq < 0 ? seq->seq : r->seq;
}

/* What the last step needs of our own memory, so that it cannot fail. */
static int reserve(const reader *r, target *t)
{
    for (uint32_t i = 0; i < t->shape.n_seq; i++) {
        kvlazy_seq_id id = id_of(r, &t->seq[i]);

        if (kvl_cells_reserve_seq(&kvl_stream_of(t->cache, id)->cells, id, t->seq[i].n_token))
            return KVLAZY_ENOMEM;
    }
    return KVLAZY_OK;
}

/* Where cells are short, a sequence with a window comes without what its next token does not see, whole positions of
 * it, as if recycling had taken it. */
static void skip_masked(const reader *r, target *t)
{
    kvlazy_cache *c = t->cache;
    uint32_t n = t->shape.n_token, n_free;

    if (r->seq < 0 || !n || !kvl_has_window(c))
        return;
    n_free = c->params.kv_size - kvl_stream_of(c, r->seq)->cells.n_used;
    int64_t begin = kvl_policy_window_begin(c->params.swa_type, c->params.n_swa, (int64_t)t->pos[n - 1] + 1);
    while (t->n_skip < n && t->pos[t->n_skip] < begin &&
           (n - t->n_skip > n_free || (t->n_skip && t->pos[t->n_skip] == t->pos[t->n_skip - 1])))
        t->n_skip++;
    if (t->n_skip && t->seq->lost_end <= t->pos[t->n_skip - 1])
        t->seq->lost_end = t->pos[t->n_skip - 1] + 1;
}

/* With the lock held. The plan of an earlier prepare may have these cells, and is void. */
static int place(reader *r, target *t)
{
    owners o = owners_of(r, t);
    uint32_t n_owner;

    skip_masked(r, t);
    int status = kvl_hold_init(&t->hold, t->shape.n_token - t->n_skip);
    t->cache->plan.n_ubatch = 0;
    kvl_limits_settle(t->cache);
    for (uint32_t i = 0; !status && i < t->hold.n; i++) {
        const uint32_t *owner = next_owners(&o, &n_owner);

        t->hold.place[i].stream = kvl_stream_number(t->cache, kvl_stream_of(t->cache, (kvlazy_seq_id)owner[0]));
    }
    if (!status)
        status = reserve(r, t);
    if (!status)
        status = kvl_hold_take(t->cache, &t->hold);
    if (status == KVLAZY_EBUDGET && r->io.ends->reclaim(t->cache))
        status = kvl_hold_take(t->cache, &t->hold);
    return status;
}

static int place_all(reader *r)
{
    int status = KVLAZY_OK;

    kvl_state_in(&r->io);
    for (uint32_t i = 0; !status && i < r->n_target; i++)
        status = place(r, &r->target[i]);
    kvl_state_out(&r->io);
    return status;
}

/* ------------------------------------------------------------------------------------------- rows */

/* The rows of a piece are in the buffer; those of tokens that are not taken stay there. */
static int put_piece(reader *r, target *t, const kvl_tensor *k, const kvl_state_piece *p)
{
    uint64_t row_bytes = kvl_state_row_bytes(k);
    uint32_t begin = p->begin > t->n_skip ? p->begin : t->n_skip, n = p->begin + p->n - begin, at = begin - t->n_skip;
    const unsigned char *rows = r->io.buffer + (begin - p->begin) * row_bytes;
    int status = kvl_hold_touch(t->cache, &t->hold, k, at, n);

    if (!status && p->part.end - p->part.begin < row_bytes)
        kvl_rows_put_part(&t->cache->rows, k, t->hold.place[at], p->part, rows);
    else if (!status)
        kvl_rows_put(&t->cache->rows, k, t->hold.place + at, n, rows);
    return status;
}

static int get_piece(reader *r, target *t, const kvl_tensor *k, const kvl_state_piece *p)
{
    int status = kvl_state_pass_bytes(&r->io, r->io.buffer, (size_t)(p->n * (p->part.end - p->part.begin)));

    if (status || p->begin + p->n <= t->n_skip)
        return status;
    kvl_state_in(&r->io);
    status = put_piece(r, t, k, p);
    kvl_state_out(&r->io);
    return status;
}

static int get_rows(reader *r, target *t)
{
    int status = KVLAZY_OK;

    for (const kvl_tensor *k = NULL; !status && (k = kvl_state_next_tensor(&t->cache->rows.geometry, k));) {
        uint64_t row_bytes = kvl_state_row_bytes(k);
        kvl_state_piece piece = {0};

        status = kvl_state_get_frame(&r->io, KVL_STATE_ROWS, t->shape.n_token * row_bytes);
        while (!status && kvl_state_next_piece(&piece, t->shape.n_token, row_bytes))
            status = get_piece(r, t, k, &piece);
        status = status ? status : kvl_state_get_checksum(&r->io);
    }
    return status;
}

static int get_all(reader *r)
{
    int status = get_metadata(r);

    if (!status)
        status = place_all(r);
    for (uint32_t i = 0; !status && i < r->n_target; i++)
        status = get_rows(r, &r->target[i]);
    if (!status && r->io.ends->at_end && r->io.ends->at_end(r->io.ends->ctx))
        status = kvl_state_refuse(&r->io, (kvl_state_fault){"bytes before more that follow", r->io.n_passed, 0});
    return status;
}

/* ------------------------------------------------------------------------------------------- becoming live */

/* What the sequence was is gone: what is known of it is what the state says. */
static void become(kvlazy_cache *c, kvlazy_seq_id id, const kvl_state_seq *is, uint64_t now_ms)
{
    kvl_seq *s = &c->seq[id];

    if (kvl_cells_rm(&kvl_stream_of(c, id)->cells, id, 0, INT32_MAX, kvl_stamp(c, now_ms)))
        kvl_note_fallow(c, now_ms);
    s->lost_end = is->lost_end;
    s->moved = is->marks & KVL_STATE_MOVED;
    s->evicted = is->marks & KVL_STATE_EVICTED;
    s->fresh = INT32_MAX; /* what was applied in this batch is gone, what came is settled */
    kvl_seq_changed(s);
    if (is->n_token)
        kvl_note_activity(c, id, now_ms);
}

static void fill(reader *r, target *t)
{
    kvlazy_cache *c = t->cache;
    owners o = owners_of(r, t);
    uint32_t n_owner, n = t->shape.n_token;

    for (uint32_t i = t->n_skip; i < n; i++) { /* only of a sequence alone any are skipped */
        kvl_place place = t->hold.place[i - t->n_skip];
        kvl_cells *cells = &c->stream[place.stream].cells;
        const uint32_t *owner = next_owners(&o, &n_owner);
        uint32_t cell = place.cell;

        kvl_cells_put(cells, cell, t->pos[i]);
        if (cells->planes) {
            cells->ext_y[cell] = t->plane[i];
            cells->ext_x[cell] = t->plane[n + (size_t)i];
        }
        for (uint32_t k = 0; k < n_owner; k++)
            kvl_cells_own(cells, cell, (kvlazy_seq_id)owner[k]);
    }
    t->hold.taken = false;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_follow_cap(c, &c->stream[s]);
}

/* With the lock held, all at once; nothing here can fail. */
static void commit(reader *r)
{
    uint64_t now_ms = kvl_now(r->io.cache);

    for (uint32_t i = 0; i < r->n_target; i++) {
        target *t = &r->target[i];

        for (kvlazy_seq_id id = 0; r->seq < 0 && id < (kvlazy_seq_id)t->cache->params.n_seq_max; id++)
            become(t->cache, id, &(kvl_state_seq){0}, now_ms); /* those without a record are as new */
        for (uint32_t k = 0; k < t->shape.n_seq; k++)
            become(t->cache, id_of(r, &t->seq[k]), &t->seq[k], now_ms);
        fill(r, t);
    }
}

/* With the lock held, but for moments between two pieces. */
static void give_up(reader *r)
{
    for (uint32_t i = 0, next = 0; i < r->n_target; i++, next = 0)
        while (kvl_hold_give_up(r->target[i].cache, &r->target[i].hold, &next)) {
            kvl_unlock(r->io.cache);
            kvl_lock(r->io.cache);
        }
}

/* ------------------------------------------------------------------------------------------- the call */

static int check_target(kvlazy_cache *c, kvlazy_seq_id seq)
{
    if (kvl_rows_on_device(&c->rows))
        return KVLAZY_ENOTSUP;
    if (kvl_waits_for_rotation(c))
        return KVLAZY_ESHIFT;
    for (uint32_t s = 0; seq < 0 && s < c->params.n_stream; s++)
        if (c->stream[s].cells.n_used)
            return KVLAZY_EINVAL;
    return KVLAZY_OK;
}

static int open_reader(reader *r, kvlazy_cache *c, kvlazy_seq_id seq)
{
    int status = KVLAZY_OK;
    uint32_t n = 0;

    r->seq = seq;
    for (kvlazy_cache *m = c->group->first; m; m = m->next, n++)
        status = status ? status : check_target(m, seq);
    if (status)
        return status;
    r->target = calloc(n, sizeof *r->target);
    if (!r->target)
        return KVLAZY_ENOMEM;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        r->target[r->n_target++].cache = m;
    return KVLAZY_OK;
}

static void close_reader(reader *r)
{
    for (uint32_t i = 0; i < r->n_target; i++) {
        free(r->target[i].seq);
        free(r->target[i].pos);
        free(r->target[i].plane);
        free(r->target[i].owner);
        kvl_hold_fini(&r->target[i].hold);
    }
    free(r->target);
    kvl_state_io_fini(&r->io);
}

/* From here to the end of the batch nothing moves. */
static int read_in_batch(reader *r)
{
    bool opens = !r->io.cache->group->open;

    kvl_batch_open(r->io.cache);
    kvl_state_out(&r->io);
    int status = get_all(r);
    kvl_state_in(&r->io);
    if (!status) {
        commit(r);
        if (r->io.ends->note_is)
            *r->io.ends->note_is = (size_t)r->head.note_bytes;
        return KVLAZY_OK;
    }
    give_up(r);
    if (opens)
        kvl_batch_close(r->io.cache);
    return status;
}

int kvl_state_read(kvlazy_cache *c, kvlazy_seq_id seq, const kvl_state_ends *ends)
{
    reader r = {0};
    int status = kvl_state_io_init(&r.io, c, ends);

    if (!status)
        status = open_reader(&r, c, seq);
    if (!status)
        status = read_in_batch(&r);
    kvl_state_say(&r.io, "state_read", status);
    close_reader(&r);
    return status;
}
