/* SPDX-License-Identifier: MIT */
/*
 * Layouts that cannot be: the log line says which layer, K or V, and which value is wrong and why, and names the page
 * with recipes.
 */
#include "layout_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvlazy/arena.h>

enum { PAGE = 4096, CELLS_OF_ALL = 100, ROW = 512 };

/* Two arenas, and a layer whose K and V lie in the first; the last line of the log. */
struct table {
    struct bed *bed;
    kvlazy_arena *arena[2];
    unsigned char *base[2];
    kvlazy_tensor k, v;
    kvlazy_layer *layer; /* [2]: the second is the library's */
    kvlazy_cache *with;
    char line[512];
};

static void on_log(void *ctx, int level, const char *text)
{
    struct table *t = ctx;

    if (level == KVLAZY_LOG_ERROR && !t->line[0])
        snprintf(t->line, sizeof t->line, "%s", text);
}

static void lay_out(struct table *t)
{
    t->k = t->v = (kvlazy_tensor){t->base[0], ROW, 0, CELLS_OF_ALL * ROW, ROW, 0};
    t->v.data = t->base[0] + (size_t)2 * CELLS_OF_ALL * ROW;
    t->layer[0] = (kvlazy_layer){7, ROW, ROW, 0, &t->k, &t->v, t->arena[0]};
    t->layer[1] = (kvlazy_layer){.id = 9, .k_row_bytes = ROW, .v_row_bytes = ROW};
    t->bed->params.kv_size = CELLS_OF_ALL;
    t->bed->params.n_stream = t->bed->params.n_seq_max = 2;
    t->bed->params.with = NULL;
    t->line[0] = 0;
}

/* ---- what may be wrong ---- */

static void short_cells(struct table *t)
{
    t->v.cell_stride = ROW - 1;
}

static void short_streams(struct table *t)
{
    t->k.stream_stride = CELLS_OF_ALL * ROW - 1;
}

static void short_channels(struct table *t)
{
    t->layer[0].v_channels = t->v.n_channel = 4;
    t->v.cell_stride = ROW / 4;
    t->v.channel_stride = CELLS_OF_ALL * ROW / 4 - 1;
}

static void endless_stride(struct table *t)
{
    t->k.stream_stride = SIZE_MAX / 2;
}

static void other_rows(struct table *t)
{
    t->layer[0].k_row_bytes = ROW + 1;
}

static void other_channels(struct table *t)
{
    t->layer[0].v_channels = 4;
}

static void uneven_channels(struct table *t)
{
    t->layer[1].v_channels = 7;
}

static void channels_of_nothing(struct table *t)
{
    t->layer[1].v_channels = 4;
    t->layer[1].v_row_bytes = 0;
}

static void uneven_k_lanes(struct table *t)
{
    t->k.n_channel = 3;
}

static void v_in_another_arena(struct table *t)
{
    t->v.data = t->base[1];
}

static void behind_the_end(struct table *t)
{
    t->v.data = (char *)t->v.data + 1;
}

static void no_arena(struct table *t)
{
    t->layer[0].arena = NULL;
}

static void a_foreign_arena(struct table *t)
{
    t->layer[0].arena = (kvlazy_arena *)t;
}

static void one_over_the_other(struct table *t)
{
    t->v.data = (char *)t->v.data - 1;
}

static void neighbours(struct table *t)
{
    t->k.cell_stride = t->v.cell_stride = 2 * ROW;
    t->k.stream_stride = t->v.stream_stride = CELLS_OF_ALL * 2 * ROW;
    t->v.data = t->base[0] + ROW;
}

static void too_many_bytes(struct table *t)
{
    t->layer[1].v_row_bytes = SIZE_MAX / 3;
}

static void named_twice(struct table *t)
{
    t->layer[1].id = 7;
}

static void arena_of_another(struct table *t)
{
    ok(kvlazy_create(&t->bed->params, &t->with));
}

static void over_a_linked_one(struct table *t)
{
    ok(kvlazy_create(&t->bed->params, &t->with));
    t->bed->params.with = t->with;
    t->layer[0].id = 5;
    t->layer[0].k_row_bytes = 0;
    t->layer[0].k = NULL;
}

static const struct wrong {
    void (*make)(struct table *t);
    int status;
    const char *says[3];
} wrong[] = {
    {short_cells, KVLAZY_EINVAL, {"layer 7 V,", "cell_stride = 511: less than"}},
    {short_streams, KVLAZY_EINVAL, {"layer 7 K,", "2 streams", "stream_stride = 51199: less than"}},
    {short_channels, KVLAZY_EINVAL, {"layer 7 V,", "channel_stride = 12799: less than"}},
    {endless_stride, KVLAZY_EINVAL, {"layer 7 K,", "stream_stride = ", "more bytes than an address holds"}},
    {other_rows, KVLAZY_EINVAL, {"layer 7 K,", "row_bytes = 512: not the layer's k_row_bytes"}},
    {other_channels, KVLAZY_EINVAL, {"layer 7 V,", "n_channel = 0: not the layer's v_channels"}},
    {uneven_channels, KVLAZY_EINVAL, {"layer 9 V,", "v_channels = 7: does not divide the row's bytes"}},
    {channels_of_nothing, KVLAZY_EINVAL, {"layer 9 V,", "v_channels = 4: channels of rows without bytes"}},
    {uneven_k_lanes, KVLAZY_EINVAL, {"layer 7 K,", "n_channel = 3: does not divide the row's bytes"}},
    {v_in_another_arena, KVLAZY_EINVAL, {"layer 7 V,", "data = 0x", "K and V in two arenas are two layers"}},
    {behind_the_end, KVLAZY_EINVAL, {"layer 7 V,", "data = 0x", "ends behind its arena"}},
    {no_arena, KVLAZY_EINVAL, {"layer 7 K,", "data = 0x", "the layer names no arena"}},
    {a_foreign_arena, KVLAZY_EINVAL, {"layer 7 K,", "what is no arena"}},
    {one_over_the_other, KVLAZY_EINVAL, {"layer 7 V,", "it runs into layer 7 K"}},
    {neighbours, KVLAZY_ENOTSUP, {"layer 7 V,", "one K-only row", "between those of layer 7 K"}},
    {too_many_bytes, KVLAZY_EINVAL, {"layer 9 V,", "v_row_bytes = ", "more bytes than an address holds"}},
    {arena_of_another, KVLAZY_EINVAL, {"layer 7 K: arena = ", "used by a cache that is not linked"}},
    {over_a_linked_one, KVLAZY_EINVAL, {"layer 5 V: it runs into layer 7 V of a linked cache"}},
    {named_twice, KVLAZY_EINVAL, {"layer id = 7: named twice"}},
};

static void every_refusal_names_layer_tensor_and_value(void **state)
{
    struct table *t = *state;

    for (const struct wrong *w = wrong; w < wrong + N_OF(wrong); w++) {
        kvlazy_cache *c = NULL;

        lay_out(t);
        w->make(t);
        expect(kvlazy_create(&t->bed->params, &c), w->status);
        for (size_t i = 0; i < N_OF(w->says) && w->says[i]; i++)
            if (!strstr(t->line, w->says[i]))
                fail_msg("\"%s\" does not say \"%s\"", t->line, w->says[i]);
        if (w->make != named_twice && !strstr(t->line, "docs/tensors.md"))
            fail_msg("\"%s\" names no page", t->line);
        kvlazy_destroy(t->with);
        t->with = NULL;
    }
    lay_out(t);
    ok(kvlazy_create(&t->bed->params, &t->with)); /* what all of them began with */
    kvlazy_destroy(t->with);
}

static int setup(void **state)
{
    struct table *t = calloc(1, sizeof *t);

    assert_non_null(t);
    t->bed = bed_new(PAGE);
    t->layer = t->bed->layers;
    t->bed->params.n_layer = 2;
    t->bed->params.log = on_log;
    t->bed->params.log_ctx = t;
    for (int i = 0; i < 2; i++) {
        void *base;

        ok(kvlazy_arena_create(&t->bed->fake.table, 4 * CELLS_OF_ALL * ROW, &t->arena[i], &base));
        t->base[i] = base;
    }
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct table *t = *state;

    for (int i = 0; i < 2; i++)
        ok(kvlazy_arena_destroy(t->arena[i]));
    bed_free(t->bed);
    free(t);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_refusal_names_layer_tensor_and_value, setup, teardown),
    };

    return cmocka_run_group_tests_name("layout refusals", tests, NULL, NULL);
}
