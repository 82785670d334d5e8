/* SPDX-License-Identifier: MIT */
/* The page covers of support.h: the bytes of all pages under the rows of some cells, page by page. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

struct pages {
    unsigned char *seen[RIG_TENSORS];
    uint64_t n;
};

static void pages_open(struct rig *rig, struct pages *pages)
{
    memset(pages, 0, sizeof *pages);
    for (int t = 0; t < rig->n_tensor; t++) {
        pages->seen[t] = calloc(rig->n_stream * rig->tensor[t].stream_stride / rig->fake.page + 2, 1);
        assert_non_null(pages->seen[t]);
    }
}

static void pages_add(struct rig *rig, struct pages *pages, uint32_t stream, uint32_t cell)
{
    for (int t = 0; t < rig->n_tensor; t++) {
        const kvlazy_tensor *tensor = &rig->tensor[t];
        size_t at = stream * tensor->stream_stride + cell * tensor->cell_stride;

        for (size_t p = at / rig->fake.page; p <= (at + tensor->row_bytes - 1) / rig->fake.page; p++) {
            pages->n += !pages->seen[t][p];
            pages->seen[t][p] = 1;
        }
    }
}

static uint64_t pages_close(struct rig *rig, struct pages *pages)
{
    for (int t = 0; t < rig->n_tensor; t++)
        free(pages->seen[t]);
    return pages->n * rig->fake.page;
}

uint64_t cover_with(struct rig *rig, uint32_t n, const uint32_t *stream, const uint32_t *cell)
{
    struct pages pages;

    pages_open(rig, &pages);
    for (uint32_t s = 0; s < rig->n_stream; s++) {
        kvlazy_cells_view view = {.struct_size = sizeof view};

        if (!rig->params.cell_ops) /* else the engine's cells are for the test to look at */
            ok(kvlazy_cells(rig->cache, s, &view));
        assert_true(view.n_cell <= rig->kv_size);
        for (uint32_t c = 0; c < view.n_cell; c++)
            if (view.pos[c] >= 0)
                pages_add(rig, &pages, s, c);
    }
    for (uint32_t i = 0; i < n; i++)
        pages_add(rig, &pages, stream[i], cell[i]);
    return pages_close(rig, &pages);
}

uint64_t cover(struct rig *rig)
{
    return cover_with(rig, 0, NULL, NULL);
}

uint64_t cover_of(struct rig *rig, uint32_t n, const uint32_t *stream, const uint32_t *cell)
{
    struct pages pages;

    pages_open(rig, &pages);
    for (uint32_t i = 0; i < n; i++)
        pages_add(rig, &pages, stream[i], cell[i]);
    return pages_close(rig, &pages);
}

uint64_t cover_cells(struct rig *rig, uint32_t stream, uint32_t lo, uint32_t hi)
{
    struct pages pages;

    pages_open(rig, &pages);
    for (uint32_t c = lo; c < hi; c++)
        pages_add(rig, &pages, stream, c);
    return pages_close(rig, &pages);
}
