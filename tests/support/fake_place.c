/* SPDX-License-Identifier: MIT */
/* See fake_place.h. */
#include "fake_place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct open_blob {
    struct fake_place *fake;
    struct fake_blob *blob; /* a copy of its own */
    bool is_put;
    uint64_t written;
    int error;
};

static int asked(struct fake_place *f, int call)
{
    f->n_call[call]++;
    if (f->inside)
        f->inside(f, call);
    if (f->fail_in > 0 && --f->fail_in == 0)
        return EIO;
    return f->error[call];
}

static struct fake_blob **find(struct fake_place *f, const uint8_t *name)
{
    struct fake_blob **at = &f->blob;

    while (*at && memcmp((*at)->name, name, 32) != 0)
        at = &(*at)->next;
    return at;
}

const struct fake_blob *fake_find(const struct fake_place *f, const uint8_t *name)
{
    return *find((struct fake_place *)(uintptr_t)f, name);
}

static void free_blob(struct fake_blob *b)
{
    free(b->data);
    free(b);
}

static struct fake_blob *new_blob(const uint8_t *name, uint64_t bytes, const uint8_t *data)
{
    struct fake_blob *b = calloc(1, sizeof *b);

    assert_non_null(b);
    memcpy(b->name, name, 32);
    b->bytes = bytes;
    b->data = calloc(1, bytes);
    assert_non_null(b->data);
    if (data)
        memcpy(b->data, data, bytes);
    return b;
}

static int fake_has(void *ctx, const uint8_t (*name)[32], uint32_t n, bool *yes)
{
    int error = asked(ctx, FAKE_HAS);

    for (uint32_t i = 0; i < n; i++)
        yes[i] = error || ((struct fake_place *)ctx)->has_lies ? true : *find(ctx, name[i]) != NULL;
    return error;
}

static int fake_open(void *ctx, const uint8_t *name, uint64_t put_bytes, void **blob)
{
    struct fake_place *f = ctx;
    int error = asked(f, FAKE_OPEN);
    const struct fake_blob *there = fake_find(f, name);

    if (!error && !put_bytes && !there)
        error = ENOENT;
    if (error)
        return error;
    struct open_blob *o = calloc(1, sizeof *o);
    assert_non_null(o);
    o->fake = f;
    o->is_put = put_bytes > 0;
    if (!put_bytes && f->lie == FAKE_OTHER)
        there = f->blob;
    o->blob = put_bytes ? new_blob(name, put_bytes, NULL) : new_blob(name, there->bytes, there->data);
    f->n_open++;
    *blob = o;
    return 0;
}

static void take_time(const struct fake_place *f)
{
    if (f->slow_ms)
        usleep(f->slow_ms * 1000);
}

static int fake_read(void *blob, uint64_t at, void *data, size_t bytes, uint32_t max_ms)
{
    struct open_blob *o = blob;
    int error = asked(o->fake, FAKE_READ);

    assert_false(o->is_put);
    o->fake->max_ms = max_ms;
    take_time(o->fake);
    if (!error && (at > o->blob->bytes || bytes > o->blob->bytes - at))
        error = ENODATA;
    if (!error && o->fake->lie != FAKE_NOTHING)
        memcpy(data, o->blob->data + at, bytes);
    if (!error && o->fake->lie == FAKE_FLIP)
        ((uint8_t *)data)[o->fake->flip_at / 8 % bytes] ^= (uint8_t)(1 << o->fake->flip_at % 8);
    return error;
}

static int fake_write(void *blob, const void *data, size_t bytes, uint32_t max_ms)
{
    struct open_blob *o = blob;
    int error = asked(o->fake, FAKE_WRITE);

    assert_true(o->is_put);
    o->fake->max_ms = max_ms;
    take_time(o->fake);
    if (!error && bytes > o->blob->bytes - o->written)
        error = EINVAL;
    if (error) {
        o->error = error;
        return error;
    }
    memcpy(o->blob->data + o->written, data, bytes);
    o->written += bytes;
    return 0;
}

static int fake_close(void *blob, bool commit)
{
    struct open_blob *o = blob;
    struct fake_place *f = o->fake;
    int error = asked(f, FAKE_CLOSE);

    if (commit && !error)
        error = !o->is_put || o->error || o->written < o->blob->bytes ? EINVAL : 0;
    if (commit && !error && !fake_find(f, o->blob->name)) {
        o->blob->bytes /= f->tears ? 2 : 1;
        o->blob->next = f->blob;
        f->blob = o->blob;
    } else {
        free_blob(o->blob);
    }
    f->n_open--;
    free(o);
    return error;
}

static int fake_touch(void *ctx, const uint8_t (*name)[32], uint32_t n)
{
    (void)name, (void)n;
    return asked(ctx, FAKE_TOUCH);
}

static int fake_drop(void *ctx, const uint8_t *name)
{
    int error = asked(ctx, FAKE_DROP);
    struct fake_blob **at = find(ctx, name), *b = *at;

    if (b && !error) {
        *at = b->next;
        free_blob(b);
    }
    return error;
}

static void fake_destroy(void *ctx)
{
    struct fake_place *f = ctx;

    f->n_call[FAKE_DESTROY]++;
    f->destroyed = true;
}

static int fake_size(void *blob, uint64_t *bytes)
{
    *bytes = ((struct open_blob *)blob)->blob->bytes;
    return 0;
}

kvlazy_store_ops fake_ops(struct fake_place *fake)
{
    return (kvlazy_store_ops){
        .struct_size = sizeof(kvlazy_store_ops),
        .ctx = fake,
        .has = fake_has,
        .open = fake_open,
        .read = fake_read,
        .write = fake_write,
        .close = fake_close,
        .touch = fake_touch,
        .drop = fake_drop,
        .destroy = fake_destroy,
        .size = fake->no_size ? NULL : fake_size,
    };
}

void fake_put(struct fake_place *f, const uint8_t *name, const uint8_t *data, uint64_t bytes)
{
    struct fake_blob *b = new_blob(name, bytes, data);

    b->next = f->blob;
    f->blob = b;
}

void fake_lose(struct fake_place *f, uint32_t n)
{
    struct fake_blob **at = &f->blob;

    if (!*at)
        return;
    for (; n; n--)
        at = (*at)->next ? &(*at)->next : &f->blob;
    struct fake_blob *b = *at;
    *at = b->next;
    free_blob(b);
}

void fake_clear(struct fake_place *f)
{
    assert_int_equal(f->n_open, 0);
    while (f->blob) {
        struct fake_blob *b = f->blob;

        f->blob = b->next;
        free_blob(b);
    }
}
