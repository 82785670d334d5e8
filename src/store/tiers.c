/* SPDX-License-Identifier: MIT */
/*
 * tiers: two places for blobs as one. Reads the near one first and copies what only the far one has; writes both. Keeps
 * nothing of its own between two calls, so that several threads need no lock here.
 */
#include "store/limit.h"
#include "store/ops.h"

#include <errno.h>

enum {
    GAP_BYTES = 64 << 10, /* what a reader leaves out, as padding, is fetched for the copy, up to so much */
    END_MS = 200,         /* for what is left out at the end */
};

typedef struct tiers {
    kvlazy_store_ops near, far;
} tiers;

/* Of a blob that is read one of them is read from; if that is the far one, near is the copy that is being made. */
typedef struct tiers_blob {
    tiers *t;
    bool is_put, may_copy;
    void *near, *far; /* NULL: none, not yet, or no longer */
    int error;        /* of a put: that of the place which was given up last */
    uint64_t copied_bytes, bytes;
    uint8_t name[32];
} tiers_blob;

/* ------------------------------------------------------------------------------------------- by name */

/* The names that the near one has not, for the far one. */
static int ask_far(tiers *t, const uint8_t (*name)[32], uint32_t n, bool *yes)
{
    uint8_t(*missing)[32] = calloc(n, sizeof *missing);
    bool *found = calloc(n, sizeof *found);
    uint32_t n_missing = 0;
    int error = missing && found ? 0 : ENOMEM;

    for (uint32_t i = 0; i < n && !error; i++)
        if (!yes[i])
            memcpy(missing[n_missing++], name[i], sizeof *missing);
    if (!error && n_missing)
        error = t->far.has(t->far.ctx, (const uint8_t(*)[32])missing, n_missing, found);
    n_missing = 0;
    for (uint32_t i = 0; i < n && !error; i++)
        if (!yes[i])
            yes[i] = found[n_missing++];
    free(missing);
    free(found);
    return error;
}

static int tiers_has(void *ctx, const uint8_t (*name)[32], uint32_t n, bool *yes)
{
    tiers *t = ctx;
    int error = t->near.has(t->near.ctx, name, n, yes);

    if (error)
        memset(yes, 0, n * sizeof *yes);
    int far_error = ask_far(t, name, n, yes);
    return error ? far_error : 0;
}

static int tiers_touch(void *ctx, const uint8_t (*name)[32], uint32_t n)
{
    tiers *t = ctx;
    int error = t->near.touch(t->near.ctx, name, n), far_error = t->far.touch(t->far.ctx, name, n);

    return error && far_error ? error : 0;
}

/* What only one of them dropped would be found again: so both have to. */
static int tiers_drop(void *ctx, const uint8_t *name)
{
    tiers *t = ctx;
    int error = t->near.drop(t->near.ctx, name), far_error = t->far.drop(t->far.ctx, name);

    return error ? error : far_error;
}

static void tiers_destroy(void *ctx)
{
    tiers *t = ctx;

    t->near.destroy(t->near.ctx);
    t->far.destroy(t->far.ctx);
    free(t);
}

/* ------------------------------------------------------------------------------------------- open */

static int open_put(tiers_blob *b)
{
    tiers *t = b->t;
    int error = t->near.open(t->near.ctx, b->name, b->bytes, &b->near);

    b->error = t->far.open(t->far.ctx, b->name, b->bytes, &b->far);
    if (error)
        b->near = NULL;
    if (b->error)
        b->far = NULL;
    return b->near || b->far ? 0 : error;
}

static int open_get(tiers_blob *b)
{
    tiers *t = b->t;
    int error = t->near.open(t->near.ctx, b->name, 0, &b->near);

    if (!error)
        return 0;
    b->near = NULL;
    error = t->far.open(t->far.ctx, b->name, 0, &b->far);
    b->may_copy = !error && t->far.size;
    return error;
}

static int tiers_open(void *ctx, const uint8_t *name, uint64_t put_bytes, void **blob)
{
    tiers_blob *b = calloc(1, sizeof *b);

    if (!b)
        return ENOMEM;
    b->t = ctx;
    b->is_put = put_bytes > 0;
    b->bytes = put_bytes;
    memcpy(b->name, name, sizeof b->name);
    int error = b->is_put ? open_put(b) : open_get(b);
    if (error)
        free(b);
    else
        *blob = b;
    return error;
}

/* ------------------------------------------------------------------------------------------- read */

/* What is left of the time of a call. */
typedef struct deadline {
    uint64_t begin_ms;
    uint32_t max_ms;
} deadline;

static deadline deadline_of(uint32_t max_ms)
{
    return (deadline){kvl_store_now_ms(), max_ms};
}

static uint32_t left_ms(const deadline *end)
{
    return end->max_ms - (uint32_t)kvl_min(kvl_store_now_ms() - end->begin_ms, end->max_ms);
}

static void give_up(const kvlazy_store_ops *place, void **blob)
{
    if (*blob)
        (void)place->close(*blob, false);
    *blob = NULL;
}

/* The near one may evict for it, so it begins when the first bytes are there: a blob may be opened and never read. */
static void begin_copy(tiers_blob *b)
{
    tiers *t = b->t;

    b->may_copy = false;
    if (t->far.size(b->far, &b->bytes) != 0 || !b->bytes || t->near.open(t->near.ctx, b->name, b->bytes, &b->near) != 0)
        b->near = NULL;
}

/* What lies between the copy and byte `at` is fetched for the copy alone. */
static void fill_gap(tiers_blob *b, uint64_t at, const deadline *end)
{
    size_t bytes = at - b->copied_bytes;
    void *data = bytes <= GAP_BYTES ? malloc(bytes) : NULL;

    if (!data || b->t->far.read(b->far, b->copied_bytes, data, bytes, left_ms(end)) != 0 ||
        b->t->near.write(b->near, data, bytes, left_ms(end)) != 0)
        give_up(&b->t->near, &b->near);
    b->copied_bytes = at;
    free(data);
}

/* The copy follows a reader that goes forward. One that jumps far gets none. */
static void copy(tiers_blob *b, uint64_t at, const char *data, size_t bytes, const deadline *end)
{
    if (b->near && at > b->copied_bytes)
        fill_gap(b, at, end);
    if (!b->near || at + bytes <= b->copied_bytes)
        return;
    size_t skip = b->copied_bytes - at;
    if (b->t->near.write(b->near, data + skip, bytes - skip, left_ms(end)) != 0)
        give_up(&b->t->near, &b->near);
    b->copied_bytes = at + bytes;
}

static int tiers_read(void *blob, uint64_t at, void *data, size_t bytes, uint32_t max_ms)
{
    tiers_blob *b = blob;
    const deadline end = deadline_of(max_ms);

    if (b->is_put)
        return EINVAL;
    if (!b->far)
        return b->t->near.read(b->near, at, data, bytes, max_ms);
    int error = b->t->far.read(b->far, at, data, bytes, max_ms);
    if (!error && b->may_copy && at == 0)
        begin_copy(b);
    if (!error && b->near)
        copy(b, at, data, bytes, &end);
    return error;
}

static int tiers_size(void *blob, uint64_t *bytes)
{
    tiers_blob *b = blob;
    const kvlazy_store_ops *place = b->far ? &b->t->far : &b->t->near;

    if (b->is_put)
        return EINVAL;
    return place->size ? place->size(b->far ? b->far : b->near, bytes) : ENOTSUP;
}

/* ------------------------------------------------------------------------------------------- write and close */

static void write_to(tiers_blob *b, const kvlazy_store_ops *place, void **to, const void *data, size_t bytes,
                     uint32_t max_ms)
{
    int error = *to ? place->write(*to, data, bytes, max_ms) : 0;

    if (!error)
        return;
    b->error = error;
    give_up(place, to);
}

static int tiers_write(void *blob, const void *data, size_t bytes, uint32_t max_ms)
{
    tiers_blob *b = blob;
    const deadline end = deadline_of(max_ms);

    if (!b->is_put)
        return EINVAL;
    write_to(b, &b->t->near, &b->near, data, bytes, max_ms);
    write_to(b, &b->t->far, &b->far, data, bytes, left_ms(&end));
    return b->near || b->far ? 0 : b->error;
}

/* A put is a success where one of them took it. One that was given up, or never opened, kept nothing. */
static int end_put(tiers_blob *b, bool commit)
{
    int near_error = b->near ? b->t->near.close(b->near, commit) : ENOENT;
    int far_error = b->far ? b->t->far.close(b->far, commit) : ENOENT;

    if (!commit || !near_error || !far_error)
        return 0;
    return b->near ? near_error : b->far ? far_error : b->error;
}

/* The copy is whole when the reader came near enough to the end. What was read is read, however it is closed. */
static int end_get(tiers_blob *b, bool commit)
{
    const deadline end = deadline_of(END_MS);

    if (b->far && b->near && b->copied_bytes < b->bytes)
        fill_gap(b, b->bytes, &end);
    if (b->near)
        (void)b->t->near.close(b->near, b->far != NULL);
    if (b->far)
        (void)b->t->far.close(b->far, false);
    return commit ? EINVAL : 0;
}

static int tiers_close(void *blob, bool commit)
{
    tiers_blob *b = blob;
    int error = b->is_put ? end_put(b, commit) : end_get(b, commit);

    free(b);
    return error;
}

/* ------------------------------------------------------------------------------------------- create */

/* False: a function is missing that every place has. */
static bool take_table(kvlazy_store_ops *ours, const kvlazy_store_ops *theirs)
{
    if (!kvl_ops_can_be_read(theirs))
        return false;
    *ours = (kvlazy_store_ops){.struct_size = sizeof *ours};
    kvl_struct_copy(ours, sizeof *ours, theirs, kvl_struct_size(theirs));
    return ours->has && ours->open && ours->read && ours->write && ours->close && ours->touch && ours->drop &&
           ours->destroy;
}

int kvlazy_store_tiers(const kvlazy_store_ops *near, const kvlazy_store_ops *far, kvlazy_store_ops *ops)
{
    tiers both;

    if (!kvl_ops_can_be_filled(ops) || !take_table(&both.near, near) || !take_table(&both.far, far))
        return KVLAZY_EINVAL;
    tiers *t = malloc(sizeof *t);
    if (!t)
        return KVLAZY_ENOMEM;
    *t = both;
    kvlazy_store_ops table = {
        .ctx = t,
        .has = tiers_has,
        .open = tiers_open,
        .read = tiers_read,
        .write = tiers_write,
        .close = tiers_close,
        .touch = tiers_touch,
        .drop = tiers_drop,
        .destroy = tiers_destroy,
        .size = tiers_size,
    };
    kvl_struct_fill(ops, &table, sizeof table);
    return KVLAZY_OK;
}
