/* SPDX-License-Identifier: MIT */
/* See seq_support.h. */
#include "seq_support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

kvlazy_cells_view look(struct rig *rig, uint32_t stream)
{
    kvlazy_cells_view view = {.struct_size = sizeof view};

    ok(kvlazy_cells(rig->cache, stream, &view));
    return view;
}

void streams_of(struct rig *rig, uint32_t n)
{
    rig->params.n_stream = n;
    rig->params.n_seq_max = n;
    rig_open(rig);
}

void open_window(struct rig *rig, uint32_t kv_size, int type, uint32_t n_swa)
{
    rig->params.kv_size = kv_size;
    rig->params.swa_type = type;
    rig->params.n_swa = n_swa;
    rig_open(rig);
}

struct rig *window_rig(uint32_t kv_size, int type, uint32_t n_swa)
{
    struct rig *rig = rig_new();

    open_window(rig, kv_size, type, n_swa);
    return rig;
}

/* ---- copies ---- */

struct token {
    kvlazy_pos pos;
    uint32_t stamp;
};

/* The tokens of a sequence in a range, as the rig wrote them. */
static struct token *tokens_of(struct rig *rig, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint32_t *n)
{
    kvlazy_cells_view view = look(rig, (uint32_t)seq);
    struct token *token = calloc(view.n_cell + 1u, sizeof *token);

    assert_non_null(token);
    *n = 0;
    for (uint32_t c = 0; c < view.n_cell; c++)
        if (is_owner(rig->cache, (uint32_t)seq, c, (uint32_t)seq) && view.pos[c] >= (p0 < 0 ? 0 : p0) &&
            (p1 < 0 || view.pos[c] < p1))
            token[(*n)++] = (struct token){view.pos[c], rig->stamp[(size_t)seq * rig->kv_size + c]};
    return token;
}

static const unsigned char *first_row(struct rig *rig, uint32_t stream, uint32_t cell)
{
    const kvlazy_tensor *t = &rig->tensor[0];

    return (const unsigned char *)t->data + stream * t->stream_stride + cell * t->cell_stride;
}

/* Of several tokens at one position any may have come to a cell, but each to one: its bytes tell which, and
 * sound() then holds all the others against it. */
static void note_row(struct rig *rig, kvlazy_seq_id src, kvlazy_seq_id dst, uint32_t cell, kvlazy_pos pos,
                     struct token *token, uint32_t n)
{
    kvlazy_cells_view from = look(rig, (uint32_t)src);

    for (uint32_t i = 0; i < n; i++) {
        if (token[i].pos != pos || !token[i].stamp)
            continue;
        for (uint32_t c = 0; c < from.n_cell; c++)
            if (from.pos[c] == pos && rig->stamp[(size_t)src * rig->kv_size + c] == token[i].stamp &&
                !memcmp(first_row(rig, (uint32_t)src, c), first_row(rig, (uint32_t)dst, cell),
                        rig->tensor[0].row_bytes)) {
                rig->stamp[(size_t)dst * rig->kv_size + cell] = token[i].stamp;
                token[i].stamp = 0;
                return;
            }
    }
    fail_msg("cell %" PRIu32 " at %d is no copy of a row of sequence %d", cell, (int)pos, (int)src);
}

/* Copies that are dead already: their rows are found by their bytes. */
static void note_dead_rows(struct rig *rig, kvlazy_seq_id src, kvlazy_seq_id dst, const struct token *token, uint32_t n)
{
    kvlazy_cells_view from = look(rig, (uint32_t)src), to = look(rig, (uint32_t)dst);

    for (uint32_t c = 0; c < to.n_cell; c++)
        for (uint32_t k = 0; k < from.n_cell; k++)
            for (uint32_t i = 0; i < n; i++)
                if (rig->stamp[(size_t)src * rig->kv_size + k] == token[i].stamp && from.pos[k] == token[i].pos &&
                    !memcmp(first_row(rig, (uint32_t)src, k), first_row(rig, (uint32_t)dst, c),
                            rig->tensor[0].row_bytes)) {
                    rig->stamp[(size_t)dst * rig->kv_size + c] = token[i].stamp;
                    rig->reach = c >= rig->reach ? c + 1 : rig->reach;
                }
}

int cp(struct rig *rig, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    return cp_by(rig, src, dst, p0, p1, kvlazy_seq_cp);
}

int cp_by(struct rig *rig, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1,
          int (*copy)(kvlazy_cache *, kvlazy_seq_id, kvlazy_seq_id, kvlazy_pos, kvlazy_pos))
{
    bool across = rig->n_stream > 1 && src != dst && src >= 0 && dst >= 0 && src < (kvlazy_seq_id)rig->n_seq &&
                  dst < (kvlazy_seq_id)rig->n_seq && (p1 < 0 || p1 > (p0 < 0 ? 0 : p0));
    uint32_t n = 0, n_found = 0;
    struct token *token = across ? tokens_of(rig, src, p0, p1, &n) : NULL;
    int status = copy(rig->cache, src, dst, p0, p1);
    kvlazy_cells_view view = look(rig, across ? (uint32_t)dst : 0);

    for (uint32_t c = 0; across && !status && c < view.n_cell; c++) {
        if (view.pos[c] < (p0 < 0 ? 0 : p0) || (p1 >= 0 && view.pos[c] >= p1))
            continue;
        note_row(rig, src, dst, c, view.pos[c], token, n);
        rig->reach = c >= rig->reach ? c + 1 : rig->reach;
        n_found++;
    }
    if (across && !status && n_found < n) { /* it came to a window that cannot be filled, and was emptied again */
        assert_int_equal(kvlazy_seq_pos_max(rig->cache, dst), -1);
        note_dead_rows(rig, src, dst, token, n);
    }
    free(token);
    return status;
}

/* ---- text ---- */

enum { N_TEXT = 4, TEXT_BYTES = 1 << 14 };

static char *fresh_text(void)
{
    static char text[N_TEXT][TEXT_BYTES];
    static int turn_of;

    return text[turn_of++ % N_TEXT];
}

const char *shifts_text(struct rig *rig, uint32_t stream)
{
    kvlazy_cells_view view = look(rig, stream);
    char *out = fresh_text();
    size_t n = 0;

    snprintf(out, TEXT_BYTES, "%s", view.shift ? "" : "none");
    for (uint32_t c = 0; view.shift && c < view.n_cell && n + 64 < TEXT_BYTES; c++)
        if (view.shift[c])
            n += (size_t)snprintf(out + n, TEXT_BYTES - n, "%s%" PRIu32 "=%d", n ? " " : "", c, (int)view.shift[c]);
    return out;
}

const char *planes_text(struct rig *rig, uint32_t stream)
{
    kvlazy_cells_view view = look(rig, stream);
    char *out = fresh_text();
    size_t n = 0;

    assert_int_equal(!view.ext_y, !view.ext_x);
    snprintf(out, TEXT_BYTES, "%s", view.ext_y || !view.n_cell ? "" : "none");
    for (uint32_t c = 0; view.ext_y && c < view.n_cell && n + 64 < TEXT_BYTES; c++)
        if (view.ext_y[c] || view.ext_x[c])
            n += (size_t)snprintf(out + n, TEXT_BYTES - n, "%s%" PRIu32 "=%d,%d", n ? " " : "", c, (int)view.ext_y[c],
                                  (int)view.ext_x[c]);
    return out;
}

int put_planes(struct rig *rig, kvlazy_seq_id seq, uint32_t n, uint32_t stride, const kvlazy_pos *pos)
{
    kvlazy_seq_id *seqs = calloc(n, sizeof *seqs);
    kvlazy_ubatch ubatch = {.n_token = n, .pos = pos, .pos_stride = stride, .seq = seqs};
    int status;

    assert_non_null(seqs);
    for (uint32_t i = 0; i < n; i++)
        seqs[i] = seq;
    status = put_tokens(rig, &ubatch, 1);
    free(seqs);
    return status;
}
