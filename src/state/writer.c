/* SPDX-License-Identifier: MIT */
/*
 * writer: see writer.h. A source is what is written of one of the linked caches: a list of its tokens, made at the
 * beginning. Neither poll nor trim runs while a state is written, so no cell moves, and the list stays true as long as
 * the generation of the sequences does.
 */
#include "state/writer.h"

#include <bsd/stdlib.h>

typedef struct source {
    kvlazy_cache *cache;
    uint64_t generation;
    kvl_state_shape shape;
    kvl_state_seq *seq; /* [shape.n_seq] */
    kvl_place *place;   /* [shape.n_token] in the order of the format */
} source;

typedef struct writer {
    kvl_state_io io;
    kvlazy_seq_id seq;
    uint32_t kind, n_source;
    source *source; /* [n_source] */
} writer;

/* ------------------------------------------------------------------------------------------- what is settled */

static bool takes_part(kvlazy_seq_id seq, kvlazy_seq_id id)
{
    return seq < 0 || seq == id;
}

/* A token that a sequence owns at `pos` is settled. */
static bool is_settled(const kvl_seq *s, kvlazy_pos pos)
{
    return !s->pending || pos < s->fresh;
}

/* The tokens of a sequence that are settled: the first so many of its index. */
static uint32_t n_settled(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_index *index = kvl_index_of(c, id);

    return c->seq[id].pending ? kvl_index_below(index, c->seq[id].fresh) : index->n;
}

static uint64_t generation_of(const kvlazy_cache *c, kvlazy_seq_id seq)
{
    uint64_t sum = 0;

    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++)
        sum += takes_part(seq, id) ? c->seq[id].generation : 0;
    return sum;
}

/* What of a sequence is settled is all that its next token needs: nothing moved that the end of the batch is to settle,
 * and no batch recycled what is in the window of what was settled before. */
static bool is_whole(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_seq *s = &c->seq[id];
    uint32_t n = n_settled(c, id);

    if (s->pending && s->fresh < 0)
        return false;
    if (!n || !kvl_has_window(c))
        return true;
    int64_t next = (int64_t)kvl_index_at(kvl_index_of(c, id), n - 1).pos + 1;
    return s->lost_end <= kvl_policy_window_begin(c->params.swa_type, c->params.n_swa, next);
}

static int check_source(kvlazy_cache *c, kvlazy_seq_id seq)
{
    if (kvl_rows_on_device(&c->rows))
        return KVLAZY_ENOTSUP;
    if (kvl_waits_for_rotation(c))
        return KVLAZY_ESHIFT;
    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++)
        if (takes_part(seq, id) && !is_whole(c, id))
            return KVLAZY_EPOS;
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- the list of tokens */

/* A token of a whole cache, to be put in order. */
typedef struct item {
    kvlazy_pos pos;
    uint32_t cell;
} item;

static int by_pos(const void *a, const void *b)
{
    const item *p = a, *q = b;

    return p->pos != q->pos ? (p->pos > q->pos) - (p->pos < q->pos) : (p->cell > q->cell) - (p->cell < q->cell);
}

/* The settled owners of a cell from `id` on; -1: none. */
static kvlazy_seq_id next_owner(const kvlazy_cache *c, const kvl_cells *cells, uint32_t cell, kvlazy_seq_id id)
{
    while ((id = kvl_cells_next_owner(cells, cell, id)) >= 0 && !is_settled(&c->seq[id], cells->pos[cell]))
        id++;
    return id;
}

static void list_sequence(source *s, kvlazy_seq_id id)
{
    const kvl_index *index = kvl_index_of(s->cache, id);
    uint32_t stream = kvl_stream_number(s->cache, kvl_stream_of(s->cache, id));

    for (uint32_t i = 0; i < s->shape.n_token; i++)
        s->place[i] = (kvl_place){stream, kvl_index_at(index, i).cell};
}

static uint32_t list_stream(source *s, uint32_t stream, uint32_t n, item *scratch)
{
    const kvl_cells *cells = &s->cache->stream[stream].cells;
    uint32_t n_item = 0;

    for (uint32_t cell = 0; cell < cells->used_end; cell++)
        if (kvl_cells_is_used(cells, cell) && next_owner(s->cache, cells, cell, 0) >= 0)
            scratch[n_item++] = (item){cells->pos[cell], cell};
    qsort(scratch, n_item, sizeof *scratch, by_pos);
    for (uint32_t i = 0; i < n_item; i++)
        s->place[n + i] = (kvl_place){stream, scratch[i].cell};
    return n + n_item;
}

/* Stream by stream, and there by position, so that a reader appends to each sequence. */
static int list_cache(source *s)
{
    uint32_t n_most = 1, n = 0;

    for (uint32_t i = 0; i < s->cache->params.n_stream; i++)
        n_most = (uint32_t)kvl_max(n_most, s->cache->stream[i].cells.n_used);
    item *scratch = reallocarray(NULL, n_most, sizeof *scratch);
    if (!scratch)
        return KVLAZY_ENOMEM;
    for (uint32_t i = 0; i < s->cache->params.n_stream; i++)
        n = list_stream(s, i, n, scratch);
    KVL_ASSERT(n == s->shape.n_token);
    free(scratch);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- what is written */

static kvl_state_seq seq_of(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_seq *s = &c->seq[id];
    uint32_t n = n_settled(c, id);

    return (kvl_state_seq){
        .lost_end = s->lost_end,
        .marks = (s->moved && n ? KVL_STATE_MOVED : 0) | (s->evicted ? KVL_STATE_EVICTED : 0),
        .n_token = n,
    };
}

/* Of a whole cache those have a record that have something to say. */
static void list_seqs(source *s, kvlazy_seq_id seq)
{
    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)s->cache->params.n_seq_max; id++) {
        kvl_state_seq record = takes_part(seq, id) ? seq_of(s->cache, id) : (kvl_state_seq){0};

        if (seq == id || record.n_token || record.lost_end || record.marks) {
            record.seq = seq < 0 ? id : 0;
            if (s->seq)
                s->seq[s->shape.n_seq] = record;
            s->shape.n_seq++;
            s->shape.n_owner += record.n_token;
        }
    }
}

/* How much there is of everything. */
static void count(source *s, kvlazy_seq_id seq)
{
    kvlazy_cache *c = s->cache;

    s->shape = kvl_state_shape_of(c);
    list_seqs(s, seq);
    s->shape.n_token = seq < 0 ? 0 : n_settled(c, seq);
    for (uint32_t i = 0; seq < 0 && i < c->params.n_stream; i++)
        for (uint32_t cell = 0; cell < c->stream[i].cells.used_end; cell++)
            s->shape.n_token +=
                kvl_cells_is_used(&c->stream[i].cells, cell) && next_owner(c, &c->stream[i].cells, cell, 0) >= 0;
}

static int open_source(source *s, kvlazy_cache *c, kvlazy_seq_id seq)
{
    *s = (source){.cache = c, .generation = generation_of(c, seq)};
    int status = check_source(c, seq);
    if (status)
        return status;
    count(s, seq);
    s->seq = reallocarray(NULL, s->shape.n_seq + (size_t)1, sizeof *s->seq);
    s->place = reallocarray(NULL, s->shape.n_token + (size_t)1, sizeof *s->place);
    if (!s->seq || !s->place)
        return KVLAZY_ENOMEM;
    s->shape.n_seq = 0;
    s->shape.n_owner = 0;
    list_seqs(s, seq);
    if (seq < 0)
        return list_cache(s);
    list_sequence(s, seq);
    return KVLAZY_OK;
}

static uint64_t total_bytes(const writer *w, uint64_t note_bytes)
{
    uint64_t bytes = sizeof(kvl_state_head) + kvl_state_section_bytes(note_bytes);

    for (uint32_t i = 0; i < w->n_source; i++)
        bytes += kvl_state_cache_bytes(w->source[i].cache, &w->source[i].shape, w->kind);
    return bytes;
}

/* ------------------------------------------------------------------------------------------- in pieces */

/* In the cache again, and all is as it was. */
static int come_in(writer *w, const source *s)
{
    kvl_state_in(&w->io);
    return generation_of(s->cache, w->seq) == s->generation ? KVLAZY_OK : KVLAZY_EPOS;
}

enum { CHUNK = KVL_ROWS_PIECE_BYTES / sizeof(kvlazy_pos) };
typedef enum column { POS, EXT_Y, EXT_X } column;

static int put_column(writer *w, const source *s, column which)
{
    kvlazy_pos *chunk = (kvlazy_pos *)(void *)w->io.buffer;
    int status = KVLAZY_OK;

    for (uint32_t i = 0, n; !status && i < s->shape.n_token; i += n) {
        n = (uint32_t)kvl_min(s->shape.n_token - i, CHUNK);
        status = come_in(w, s);
        for (uint32_t k = 0; !status && k < n; k++) {
            const kvl_cells *cells = &s->cache->stream[s->place[i + k].stream].cells;
            const kvlazy_pos *from = which == POS ? cells->pos : which == EXT_Y ? cells->ext_y : cells->ext_x;

            chunk[k] = from[s->place[i + k].cell];
        }
        kvl_state_out(&w->io);
        status = status ? status : kvl_state_pass_bytes(&w->io, chunk, n * sizeof *chunk);
    }
    return status;
}

/* Owners of the tokens from *i on, as many as fit. */
static uint32_t fill_owners(const source *s, uint32_t *i, uint32_t *chunk)
{
    uint32_t n = 0;

    for (; *i < s->shape.n_token && n + 1 + s->cache->params.n_seq_max <= CHUNK + 1; ++*i) {
        const kvl_cells *cells = &s->cache->stream[s->place[*i].stream].cells;
        uint32_t head = n++, cell = s->place[*i].cell;

        for (kvlazy_seq_id id = -1; (id = next_owner(s->cache, cells, cell, id + 1)) >= 0;)
            chunk[n++] = (uint32_t)id;
        chunk[head] = n - head - 1;
    }
    return n;
}
_Static_assert((int)CHUNK >= (int)KVL_SEQ_MAX, "the buffer has room for the owners of one token");

static int put_owners(writer *w, const source *s)
{
    uint32_t *chunk = (uint32_t *)(void *)w->io.buffer, n = 0;
    int status = KVLAZY_OK;

    for (uint32_t i = 0; !status && w->kind == KVL_STATE_CACHE && i < s->shape.n_token;) {
        status = come_in(w, s);
        n = status ? 0 : fill_owners(s, &i, chunk);
        kvl_state_out(&w->io);
        status = status ? status : kvl_state_pass_bytes(&w->io, chunk, n * sizeof *chunk);
    }
    return status;
}

static int put_piece(writer *w, const source *s, const kvl_tensor *t, const kvl_state_piece *p)
{
    bool is_part = p->part.end - p->part.begin < kvl_state_row_bytes(t);
    int status = come_in(w, s);

    if (!status && is_part)
        kvl_rows_get_part(&s->cache->rows, t, s->place[p->begin], p->part, w->io.buffer);
    else if (!status)
        kvl_rows_get(&s->cache->rows, t, s->place + p->begin, p->n, w->io.buffer);
    kvl_state_out(&w->io);
    return status ? status : kvl_state_pass_bytes(&w->io, w->io.buffer, (size_t)(p->n * (p->part.end - p->part.begin)));
}

/* ------------------------------------------------------------------------------------------- sections */

static int put_section(writer *w, uint32_t name, const void *data, uint64_t bytes)
{
    int status = kvl_state_put_frame(&w->io, name, bytes);

    if (!status) /* what is written is only read */
        status = kvl_state_pass_bytes(&w->io, (void *)(uintptr_t)data, (size_t)bytes);
    return status ? status : kvl_state_put_checksum(&w->io);
}

static int put_head(writer *w)
{
    kvl_state_head head = {
        .magic = KVL_STATE_MAGIC,
        .version = KVL_STATE_VERSION,
        .head_bytes = sizeof head,
        .kind = w->kind,
        .n_cache = w->n_source,
        .note_bytes = w->io.ends->note_bytes,
        .total_bytes = total_bytes(w, w->io.ends->note_bytes),
    };

    head.checksum = kvl_checksum_of(&head, offsetof(kvl_state_head, checksum));
    int status = w->io.ends->expect ? w->io.ends->expect(w->io.ends->ctx, head.total_bytes) : KVLAZY_OK;
    if (!status)
        status = kvl_state_pass_raw(&w->io, &head, sizeof head);
    return status ? status : put_section(w, KVL_STATE_NOTE, w->io.ends->note, w->io.ends->note_bytes);
}

static int put_shape(writer *w, const source *s)
{
    kvl_state_shape shape = s->shape;
    int status = kvl_state_put_frame(&w->io, KVL_STATE_SHAPE, kvl_state_shape_bytes(&shape));

    if (!status)
        status = kvl_state_pass_bytes(&w->io, &shape, sizeof shape);
    for (const kvl_tensor *t = NULL; !status && (t = kvl_state_next_tensor(&s->cache->rows.geometry, t));) {
        kvl_state_tensor tensor = kvl_state_tensor_of(t);

        status = kvl_state_pass_bytes(&w->io, &tensor, sizeof tensor);
    }
    return status ? status : kvl_state_put_checksum(&w->io);
}

static int put_tokens(writer *w, const source *s)
{
    int status = put_shape(w, s);

    if (!status)
        status = put_section(w, KVL_STATE_SEQS, s->seq, s->shape.n_seq * sizeof *s->seq);
    if (!status)
        status = kvl_state_put_frame(&w->io, KVL_STATE_POSITIONS, s->shape.n_token * (uint64_t)sizeof(kvlazy_pos));
    if (!status)
        status = put_column(w, s, POS);
    if (!status)
        status = kvl_state_put_checksum(&w->io);
    if (!status)
        status = kvl_state_put_frame(&w->io, KVL_STATE_PLANES, kvl_state_planes_bytes(&s->shape));
    for (column which = EXT_Y; !status && s->shape.n_plane > 1 && which <= EXT_X; which++)
        status = put_column(w, s, which);
    if (!status)
        status = kvl_state_put_checksum(&w->io);
    if (!status)
        status = kvl_state_put_frame(&w->io, KVL_STATE_OWNERS, kvl_state_owners_bytes(&s->shape, w->kind));
    if (!status)
        status = put_owners(w, s);
    return status ? status : kvl_state_put_checksum(&w->io);
}

static int put_rows(writer *w, const source *s)
{
    int status = KVLAZY_OK;

    for (const kvl_tensor *t = NULL; !status && (t = kvl_state_next_tensor(&s->cache->rows.geometry, t));) {
        kvl_state_piece piece = {0};

        status = kvl_state_put_frame(&w->io, KVL_STATE_ROWS, s->shape.n_token * kvl_state_row_bytes(t));
        while (!status && kvl_state_next_piece(&piece, s->shape.n_token, kvl_state_row_bytes(t)))
            status = put_piece(w, s, t, &piece);
        status = status ? status : kvl_state_put_checksum(&w->io);
    }
    return status;
}

static int put_all(writer *w)
{
    int status = put_head(w);

    for (uint32_t i = 0; !status && i < w->n_source; i++)
        status = put_tokens(w, &w->source[i]);
    for (uint32_t i = 0; !status && i < w->n_source; i++)
        status = put_rows(w, &w->source[i]);
    return status;
}

/* ------------------------------------------------------------------------------------------- the calls */

static int open_writer(writer *w, kvlazy_cache *c, kvlazy_seq_id seq)
{
    uint32_t n = 0;

    w->seq = seq;
    w->kind = seq < 0 ? KVL_STATE_CACHE : KVL_STATE_SEQUENCE;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        n++;
    w->source = calloc(n, sizeof *w->source);
    int status = w->source ? KVLAZY_OK : KVLAZY_ENOMEM;
    for (kvlazy_cache *m = c->group->first; !status && m; m = m->next)
        status = open_source(&w->source[w->n_source++], m, seq);
    return status;
}

static void close_writer(writer *w)
{
    for (uint32_t i = 0; i < w->n_source; i++) {
        free(w->source[i].seq);
        free(w->source[i].place);
    }
    free(w->source);
}

int kvl_state_write(kvlazy_cache *c, kvlazy_seq_id seq, const kvl_state_ends *ends)
{
    writer w = {0};
    int status = kvl_state_io_init(&w.io, c, ends);

    if (!status)
        status = open_writer(&w, c, seq);
    if (!status) {
        kvl_state_out(&w.io);
        status = put_all(&w);
        kvl_state_in(&w.io);
    }
    kvl_state_say(&w.io, "state_write", status);
    close_writer(&w);
    kvl_state_io_fini(&w.io);
    return status;
}

int kvl_state_measure(kvlazy_cache *c, kvlazy_seq_id seq, uint64_t *bytes)
{
    writer w = {0};
    int status = open_writer(&w, c, seq);

    if (!status)
        *bytes = total_bytes(&w, 0);
    close_writer(&w);
    return status;
}
