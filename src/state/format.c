/* SPDX-License-Identifier: MIT */
/* format: see format.h. */
#include "state/format.h"
#include "core/hold.h"
#include "state/checksum.h"

#define FAULT(what, theirs, ours) ((kvl_state_fault){what, (uint64_t)(theirs), (uint64_t)(ours)})
#define SOUND ((kvl_state_fault){0})

/* ------------------------------------------------------------------------------------------- what a cache is like */

kvl_state_shape kvl_state_shape_of(const kvlazy_cache *c)
{
    kvl_state_shape shape = {
        .n_plane = c->params.n_pos_per_token > 1 ? 3 : 1,
        .swa_type = (uint32_t)c->params.swa_type,
        .n_swa = c->params.n_swa,
        .n_tensor = c->rows.geometry.n_tensor,
        .tag_bytes = (uint32_t)c->params.model_tag_bytes,
    };

    memcpy(shape.tag, c->tag, sizeof shape.tag);
    return shape;
}

/* By layer, K before V. */
static bool is_before(const kvl_tensor *a, const kvl_tensor *b)
{
    return a->layer_id != b->layer_id ? a->layer_id < b->layer_id : a->is_v < b->is_v;
}

const kvl_tensor *kvl_state_next_tensor(const kvl_geometry *g, const kvl_tensor *tensor)
{
    const kvl_tensor *next = NULL;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_tensor; t++)
        if ((!tensor || is_before(tensor, t)) && (!next || is_before(t, next)))
            next = t;
    return next;
}

kvl_state_tensor kvl_state_tensor_of(const kvl_tensor *t)
{
    return (kvl_state_tensor){t->layer_id, t->is_v, kvl_state_row_bytes(t)};
}

/* ------------------------------------------------------------------------------------------- sizes */

uint64_t kvl_state_shape_bytes(const kvl_state_shape *s)
{
    return sizeof *s + s->n_tensor * (uint64_t)sizeof(kvl_state_tensor);
}

uint64_t kvl_state_planes_bytes(const kvl_state_shape *s)
{
    return s->n_plane > 1 ? 2 * sizeof(kvlazy_pos) * (uint64_t)s->n_token : 0;
}

uint64_t kvl_state_owners_bytes(const kvl_state_shape *s, uint32_t kind)
{
    return kind == KVL_STATE_CACHE ? sizeof(uint32_t) * (s->n_token + s->n_owner) : 0;
}

uint64_t kvl_state_section_bytes(uint64_t bytes)
{
    return sizeof(kvl_state_frame) + bytes + sizeof(uint64_t);
}

uint64_t kvl_state_cache_bytes(const kvlazy_cache *c, const kvl_state_shape *s, uint32_t kind)
{
    const kvl_geometry *g = &c->rows.geometry;
    uint64_t bytes = kvl_state_section_bytes(kvl_state_shape_bytes(s)) +
                     kvl_state_section_bytes(s->n_seq * (uint64_t)sizeof(kvl_state_seq)) +
                     kvl_state_section_bytes(s->n_token * (uint64_t)sizeof(kvlazy_pos)) +
                     kvl_state_section_bytes(kvl_state_planes_bytes(s)) +
                     kvl_state_section_bytes(kvl_state_owners_bytes(s, kind));

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_tensor; t++)
        bytes += kvl_state_section_bytes(s->n_token * kvl_state_row_bytes(t));
    return bytes;
}

bool kvl_state_next_piece(kvl_state_piece *p, uint32_t n_token, uint64_t row_bytes)
{
    if (p->part.end < row_bytes && p->n) {
        p->part = (kvl_span){p->part.end, kvl_min(row_bytes, p->part.end + KVL_ROWS_PIECE_BYTES)};
        return true;
    }
    p->begin += p->n;
    p->n = (uint32_t)kvl_min(kvl_max(KVL_ROWS_PIECE_BYTES / row_bytes, 1), KVL_HOLD_PIECE);
    p->n = (uint32_t)kvl_min(p->n, n_token - p->begin);
    p->part = (kvl_span){0, kvl_min(row_bytes, KVL_ROWS_PIECE_BYTES)};
    return p->n > 0;
}

/* ------------------------------------------------------------------------------------------- checks of the head */

kvl_state_fault kvl_state_check_head(const kvl_state_head *h, uint32_t kind, uint32_t n_cache)
{
    uint64_t checksum = kvl_checksum_of(h, offsetof(kvl_state_head, checksum));

    if (h->magic == __builtin_bswap64(KVL_STATE_MAGIC))
        return FAULT("byte order", h->magic, KVL_STATE_MAGIC);
    if (h->magic != KVL_STATE_MAGIC)
        return FAULT("magic", h->magic, KVL_STATE_MAGIC);
    if (h->version != KVL_STATE_VERSION)
        return FAULT("version", h->version, KVL_STATE_VERSION);
    if (h->head_bytes != sizeof *h)
        return FAULT("bytes of the head", h->head_bytes, sizeof *h);
    if (h->checksum != checksum)
        return FAULT("checksum of the head", h->checksum, checksum);
    if (h->kind != kind)
        return FAULT("kind (0 a sequence, 1 a cache)", h->kind, kind);
    if (h->n_cache != n_cache)
        return FAULT("linked caches", h->n_cache, n_cache);
    return SOUND;
}

kvl_state_fault kvl_state_check_frame(const kvl_state_frame *f, uint32_t name, uint32_t number, uint64_t bytes)
{
    if (f->name != name)
        return FAULT("name of a section", f->name, name);
    if (f->number != number)
        return FAULT("number of a section", f->number, number);
    if (f->bytes != bytes)
        return FAULT("bytes of a section", f->bytes, bytes);
    return SOUND;
}

/* ------------------------------------------------------------------------------------------- checks of the shape */

static kvl_state_fault check_geometry(const kvl_state_shape *s, const kvl_state_shape *here)
{
    if (s->tag_bytes != here->tag_bytes)
        return FAULT("model_tag_bytes", s->tag_bytes, here->tag_bytes);
    for (uint32_t i = 0; i < KVL_TAG_BYTES; i++)
        if (s->tag[i] != here->tag[i])
            return FAULT("a byte of model_tag", s->tag[i], here->tag[i]);
    if (s->n_plane != here->n_plane)
        return FAULT("position planes", s->n_plane, here->n_plane);
    if (s->swa_type != here->swa_type)
        return FAULT("swa_type", s->swa_type, here->swa_type);
    if (s->n_swa != here->n_swa)
        return FAULT("n_swa", s->n_swa, here->n_swa);
    if (s->n_tensor != here->n_tensor)
        return FAULT("tensors", s->n_tensor, here->n_tensor);
    return SOUND;
}

kvl_state_fault kvl_state_check_shape(const kvlazy_cache *c, const kvl_state_shape *s, uint32_t kind)
{
    kvl_state_shape here = kvl_state_shape_of(c);
    kvl_state_fault fault = check_geometry(s, &here);

    if (fault.what)
        return fault;
    if (s->zero)
        return FAULT("a field that is zero", s->zero, 0);
    if (kind == KVL_STATE_SEQUENCE ? s->n_seq != 1 : s->n_seq > c->params.n_seq_max)
        return FAULT("sequences", s->n_seq, kind == KVL_STATE_SEQUENCE ? 1 : c->params.n_seq_max);
    if (s->n_owner < s->n_token || s->n_owner > s->n_token * (uint64_t)s->n_seq)
        return FAULT("owners of all tokens", s->n_owner, s->n_token);
    return SOUND;
}

kvl_state_fault kvl_state_check_tensor(const kvl_state_tensor *t, const kvl_tensor *here)
{
    if (t->layer_id != here->layer_id)
        return FAULT("id of a layer", t->layer_id, here->layer_id);
    if (t->is_v != here->is_v)
        return FAULT("K or V of a layer", t->is_v, here->is_v);
    if (t->row_bytes != kvl_state_row_bytes(here))
        return FAULT("bytes of a row", t->row_bytes, kvl_state_row_bytes(here));
    return SOUND;
}

/* ------------------------------------------------------------------------------------------- checks of tokens */

kvl_state_fault kvl_state_check_seq(const kvlazy_cache *c, const kvl_state_seq *s, uint32_t kind, kvlazy_seq_id least)
{
    if (s->seq < least || (kind == KVL_STATE_SEQUENCE ? s->seq != 0 : !kvl_is_seq(c, s->seq)))
        return FAULT("id of a sequence", (uint32_t)s->seq, (uint32_t)least);
    if (s->marks & ~(uint32_t)(KVL_STATE_MOVED | KVL_STATE_EVICTED))
        return FAULT("marks of a sequence", s->marks, 0);
    if (s->lost_end < 0 || s->lost_end == INT32_MAX || (s->lost_end && !kvl_has_window(c)))
        return FAULT("end of what recycling took", (uint32_t)s->lost_end, 0);
    return SOUND;
}

/* The owners of one token at `pos`. */
static kvl_state_fault check_owners(kvlazy_cache *c, kvlazy_pos pos, const uint32_t *owner, uint32_t n,
                                    kvl_state_seen *seen)
{
    for (uint32_t k = 0; k < n; k++) {
        if (owner[k] >= c->params.n_seq_max || !seen[owner[k]].known || (k && owner[k] <= owner[k - 1]))
            return FAULT("owner of a token", owner[k], c->params.n_seq_max);
        if (kvl_stream_of(c, (kvlazy_seq_id)owner[k]) != kvl_stream_of(c, (kvlazy_seq_id)owner[0]))
            return FAULT("owners of a token that live in different streams here", owner[k], owner[0]);
        if (pos < seen[owner[k]].last)
            return FAULT("position that falls", (uint32_t)pos, (uint32_t)seen[owner[k]].last);
        seen[owner[k]].last = pos;
        seen[owner[k]].n_token++;
    }
    return SOUND;
}

/* A window that cannot be filled any more would be emptied at once. */
static kvl_state_fault check_whole(const kvlazy_cache *c, const kvl_state_seq *s, const kvl_state_seen *seen)
{
    if (s->n_token != seen->n_token)
        return FAULT("tokens of a sequence", s->n_token, seen->n_token);
    if (!s->n_token || !kvl_has_window(c))
        return SOUND;
    int64_t begin = kvl_policy_window_begin(c->params.swa_type, c->params.n_swa, (int64_t)seen->last + 1);
    return s->lost_end > begin ? FAULT("end of what recycling took", s->lost_end, begin) : SOUND;
}

kvl_state_fault kvl_state_check_tokens(kvlazy_cache *c, const kvl_state_shape *shape, const kvl_state_seq *seq,
                                       const kvlazy_pos *pos, const uint32_t *owner, kvl_state_seen *seen)
{
    static const uint32_t alone[2] = {1, 0};
    uint64_t at = 0, end = shape->n_token + shape->n_owner;
    kvl_state_fault fault = SOUND;

    for (uint32_t i = 0; i < shape->n_seq; i++)
        seen[seq[i].seq].known = true;
    for (uint32_t i = 0; !fault.what && i < shape->n_token; i++) {
        const uint32_t *of_token = owner ? owner + at : alone;

        if (pos[i] < 0 || pos[i] == INT32_MAX)
            return FAULT("position", (uint32_t)pos[i], 0);
        if (!of_token[0] || (owner && of_token[0] >= end - at))
            return FAULT("owners of a token", of_token[0], end - at);
        fault = check_owners(c, pos[i], of_token + 1, of_token[0], seen);
        at += owner ? of_token[0] + (uint64_t)1 : 0;
        if (!fault.what && owner && end - at < shape->n_token - i - (uint64_t)1)
            return FAULT("owners of all tokens", end, at);
    }
    if (!fault.what && owner && at != end)
        return FAULT("owners of all tokens", end, at);
    for (uint32_t i = 0; !fault.what && i < shape->n_seq; i++)
        fault = check_whole(c, &seq[i], &seen[seq[i].seq]);
    return fault;
}
