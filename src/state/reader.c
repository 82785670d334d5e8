/* SPDX-License-Identifier: MIT */
/*
 * reader: see reader.h. Each linked cache has a target. Metadata comes first, and is kept; rows pass through the
 * buffer. Memory grows with what arrives, not with what is announced.
 */
#include "state/reader.h"
#include "core/batch.h"
#include "core/clock.h"
#include "state/target.h"

typedef kvl_state_target target;

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

/* Bytes of a note that is not asked for pass through the buffer. */
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

/* With the lock held for it. */
static int place_all(reader *r)
{
    int status = KVLAZY_OK;

    kvl_state_in(&r->io);
    for (uint32_t i = 0; !status && i < r->n_target; i++)
        status = kvl_state_target_place(&r->target[i], r->io.ends->reclaim);
    kvl_state_out(&r->io);
    return status;
}

/* ------------------------------------------------------------------------------------------- rows */

static int get_piece(reader *r, target *t, const kvl_tensor *k, const kvl_state_piece *p)
{
    int status = kvl_state_pass_bytes(&r->io, r->io.buffer, (size_t)(p->n * (p->part.end - p->part.begin)));

    if (status)
        return status;
    kvl_state_in(&r->io);
    status = kvl_state_target_put(t, k, p, r->io.buffer);
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

static int get_end(reader *r)
{
    int status = r->io.ends->at_end ? r->io.ends->at_end(r->io.ends->ctx) : KVLAZY_OK;

    if (status != KVLAZY_ESTATE)
        return status;
    return kvl_state_refuse(&r->io, (kvl_state_fault){"bytes behind the end of the state: at least", 1, 0});
}

static int get_all(reader *r)
{
    int status = get_metadata(r);

    if (!status)
        status = place_all(r);
    for (uint32_t i = 0; !status && i < r->n_target; i++)
        status = get_rows(r, &r->target[i]);
    return status ? status : get_end(r);
}

/* ------------------------------------------------------------------------------------------- the call */

/* With the lock held, but for moments between two pieces, out as for a callback, so that no linked cache is destroyed.
 */
static void give_up(reader *r)
{
    for (uint32_t i = 0, next = 0; i < r->n_target; i++, next = 0)
        while (kvl_hold_give_up(r->target[i].cache, &r->target[i].hold, &next)) {
            kvl_state_out(&r->io);
            kvl_state_in(&r->io);
        }
}

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
        r->target[r->n_target++] = (target){.cache = m, .id = seq};
    return KVLAZY_OK;
}

static void close_reader(reader *r)
{
    for (uint32_t i = 0; i < r->n_target; i++)
        kvl_state_target_fini(&r->target[i]);
    free(r->target);
    kvl_state_io_fini(&r->io);
}

/* Room for the last step, which another thread may have used while rows came. A cache that was linked meanwhile would
 * not get the sequence: KVLAZY_EPOS. */
static int reserve_all(reader *r)
{
    uint32_t n = 0;
    int status = KVLAZY_OK;

    for (const kvlazy_cache *m = r->io.cache->group->first; m; m = m->next)
        n++;
    if (n != r->n_target)
        return KVLAZY_EPOS;
    for (uint32_t i = 0; !status && i < r->n_target; i++)
        status = kvl_state_target_reserve(&r->target[i]);
    return status;
}

/* From here to the end of the batch nothing moves. */
static int read_in_batch(reader *r)
{
    bool opens = !r->io.cache->group->open;

    kvl_batch_open(r->io.cache->group);
    kvl_state_out(&r->io);
    int status = get_all(r);
    kvl_state_in(&r->io);
    if (!status)
        status = reserve_all(r);
    if (!status) {
        uint64_t now_ms = kvl_now(r->io.cache);

        for (uint32_t i = 0; i < r->n_target; i++)
            kvl_state_target_commit(&r->target[i], now_ms);
        if (r->io.ends->note_is)
            *r->io.ends->note_is = (size_t)r->head.note_bytes;
        return KVLAZY_OK;
    }
    give_up(r);
    if (opens)
        kvl_batch_close(r->io.cache->group);
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
