/* SPDX-License-Identifier: MIT */
/* See policy_place.h. */
#include "policy_place.h"

#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <bsd/stdlib.h>
#include <bsd/sys/queue.h>

enum { BUCKETS = 4096, NAME_BYTES = 32 };

struct run {
    uint32_t n;
    unsigned char byte;
};

struct blob {
    SLIST_ENTRY(blob) next;
    uint8_t name[NAME_BYTES];
    uint64_t bytes; /* written */
    struct run *run;
    size_t n_run, room;
};

struct place {
    SLIST_HEAD(, blob) bucket[BUCKETS];
    uint64_t held_bytes;
};

/* An open blob: one that is written belongs to nothing yet. */
struct handle {
    struct place *place;
    struct blob *blob;
    uint64_t put_bytes; /* 0: it is read */
    size_t run;         /* the last one that was read, */
    uint64_t run_at;    /* … and where it begins */
};

static size_t bucket_of(const uint8_t *name)
{
    return (name[0] | (size_t)name[1] << 8) % BUCKETS;
}

static struct blob *find(struct place *place, const uint8_t *name)
{
    struct blob *blob;
    SLIST_FOREACH (blob, &place->bucket[bucket_of(name)], next) {
        if (memcmp(blob->name, name, NAME_BYTES) == 0) {
            return blob;
        }
    }
    return NULL;
}

static void blob_free(struct blob *blob)
{
    free(blob->run);
    free(blob);
}

static int place_has(void *ctx, const uint8_t (*name)[32], uint32_t n, bool *yes)
{
    for (uint32_t i = 0; i < n; i++) {
        yes[i] = find(ctx, name[i]) != NULL;
    }
    return 0;
}

static int place_open(void *ctx, const uint8_t *name, uint64_t put_bytes, void **blob)
{
    struct handle *handle = calloc(1, sizeof(*handle));
    struct blob *here = put_bytes != 0 ? calloc(1, sizeof(*here)) : find(ctx, name);
    if (handle == NULL || here == NULL) {
        free(handle);
        if (put_bytes != 0) {
            free(here);
        }
        return put_bytes != 0 || handle == NULL ? ENOMEM : ENOENT;
    }
    if (put_bytes != 0) {
        memcpy(here->name, name, NAME_BYTES);
    }
    *handle = (struct handle){.place = ctx, .blob = here, .put_bytes = put_bytes};
    *blob = handle;
    return 0;
}

static int place_read(void *blob, uint64_t at, void *data, size_t bytes, uint32_t max_ms)
{
    struct handle *handle = blob;
    (void)max_ms;
    if (bytes > handle->blob->bytes || at > handle->blob->bytes - bytes) {
        return ENODATA;
    }
    if (at < handle->run_at) {
        handle->run = 0;
        handle->run_at = 0;
    }
    for (char *to = data; bytes > 0;) {
        const struct run *run = &handle->blob->run[handle->run];
        uint64_t end = handle->run_at + run->n;
        if (at >= end) {
            handle->run++;
            handle->run_at = end;
            continue;
        }
        size_t n = end - at < bytes ? (size_t)(end - at) : bytes;
        memset(to, run->byte, n);
        to += n;
        at += n;
        bytes -= n;
    }
    return 0;
}

/* How many bytes are as the first one. */
static size_t run_length(const unsigned char *data, size_t bytes)
{
    uint64_t want, word;
    size_t n = 0;
    memset(&want, data[0], sizeof(want));
    for (; bytes - n >= sizeof(word); n += sizeof(word)) {
        memcpy(&word, data + n, sizeof(word));
        if (word != want) {
            break;
        }
    }
    while (n < bytes && data[n] == data[0]) {
        n++;
    }
    return n;
}

static int add_run(struct blob *blob, unsigned char byte, size_t n)
{
    if (blob->n_run > 0 && blob->run[blob->n_run - 1].byte == byte) {
        blob->run[blob->n_run - 1].n += (uint32_t)n;
        return 0;
    }
    if (blob->n_run == blob->room) {
        size_t room = blob->room == 0 ? 1024 : 2 * blob->room;
        struct run *run = reallocarray(blob->run, room, sizeof(*run));
        if (run == NULL) {
            return ENOMEM;
        }
        blob->run = run;
        blob->room = room;
    }
    blob->run[blob->n_run++] = (struct run){.n = (uint32_t)n, .byte = byte};
    return 0;
}

static int place_write(void *blob, const void *data, size_t bytes, uint32_t max_ms)
{
    struct handle *handle = blob;
    const unsigned char *from = data;
    (void)max_ms;
    if (bytes > handle->put_bytes - handle->blob->bytes) {
        return EINVAL;
    }
    handle->blob->bytes += bytes;
    for (size_t n; bytes > 0; from += n, bytes -= n) {
        n = run_length(from, bytes);
        if (add_run(handle->blob, *from, n) != 0) {
            return ENOMEM;
        }
    }
    return 0;
}

static int place_close(void *blob, bool commit)
{
    struct handle *handle = blob;
    struct blob *here = handle->blob;
    struct place *place = handle->place;
    bool is_put = handle->put_bytes != 0, whole = here->bytes == handle->put_bytes;
    free(handle);
    if (!is_put) {
        return 0;
    }
    if (!commit || !whole || find(place, here->name) != NULL) {
        blob_free(here);
        return commit && !whole ? EINVAL : 0;
    }
    SLIST_INSERT_HEAD(&place->bucket[bucket_of(here->name)], here, next);
    place->held_bytes += here->bytes;
    return 0;
}

static int place_touch(void *ctx, const uint8_t (*name)[32], uint32_t n)
{
    (void)ctx, (void)name, (void)n;
    return 0;
}

static int place_drop(void *ctx, const uint8_t *name)
{
    struct place *place = ctx;
    struct blob *blob = find(place, name);
    if (blob != NULL) {
        SLIST_REMOVE(&place->bucket[bucket_of(name)], blob, blob, next);
        place->held_bytes -= blob->bytes;
        blob_free(blob);
    }
    return 0;
}

static void place_destroy(void *ctx)
{
    struct place *place = ctx;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (!SLIST_EMPTY(&place->bucket[i])) {
            struct blob *blob = SLIST_FIRST(&place->bucket[i]);
            SLIST_REMOVE_HEAD(&place->bucket[i], next);
            blob_free(blob);
        }
    }
    free(place);
}

uint64_t place_held_bytes(const void *ctx)
{
    const struct place *place = ctx;
    return place->held_bytes;
}

int place_create(kvlazy_store_ops *ops)
{
    struct place *place = calloc(1, sizeof(*place));
    if (place == NULL) {
        return bench_error("out of memory");
    }
    *ops = (kvlazy_store_ops){
        .struct_size = sizeof(*ops),
        .ctx = place,
        .has = place_has,
        .open = place_open,
        .read = place_read,
        .write = place_write,
        .close = place_close,
        .touch = place_touch,
        .drop = place_drop,
        .destroy = place_destroy,
    };
    return 0;
}
