/* SPDX-License-Identifier: MIT */
/*
 * buffer: a buffer type of ggml whose buffers are arenas. ggml calls it by the tables below, and kvlazy_ggml_layer asks
 * it for the arena. Calls public functions of kvlazy alone, and never learns which cells a tensor has.
 */
#include <kvlazy/ggml.h>

#include <stdlib.h>
#include <string.h>

#include <ggml-backend-impl.h>

typedef struct held {
    kvlazy_arena *arena;
    char *base;
} held;

/* A tensor that is a view may have no buffer of its own. */
static ggml_backend_buffer_t buffer_of(const struct ggml_tensor *tensor)
{
    return tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
}

/* ------------------------------------------------------------------------------------------- a buffer */

/* kvlazy_arena_destroy refuses while a cache uses the arena. ggml has no way to hear of that: the address space stays,
 * and with it what the cache may still write. */
static void free_buffer(ggml_backend_buffer_t buffer)
{
    held *h = buffer->context;

    (void)kvlazy_arena_destroy(h->arena);
    free(h);
}

static void *get_base(ggml_backend_buffer_t buffer)
{
    return ((held *)buffer->context)->base;
}

/* Bytes of the buffer become one value. 0 costs pages nothing: a memset would make the whole reservation resident. */
static void fill(ggml_backend_buffer_t buffer, char *at, uint8_t value, size_t bytes)
{
    held *h = buffer->context;

    if (value != 0 || kvlazy_arena_discard(h->arena, (size_t)(at - h->base), bytes) != KVLAZY_OK)
        memset(at, value, bytes);
}

static void clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    fill(buffer, get_base(buffer), value, buffer->size);
}

static void memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset,
                          size_t bytes)
{
    fill(buffer, (char *)tensor->data + offset, value, bytes);
}

static void set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset,
                       size_t bytes)
{
    (void)buffer;
    memcpy((char *)tensor->data + offset, data, bytes);
}

static void get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset,
                       size_t bytes)
{
    (void)buffer;
    memcpy(data, (const char *)tensor->data + offset, bytes);
}

/* Returns false for what the host cannot read: ggml then goes by get and set. */
static bool cpy_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst)
{
    (void)buffer;
    if (!ggml_backend_buffer_is_host(buffer_of(src)))
        return false;
    memmove(dst->data, src->data, ggml_nbytes(src));
    return true;
}

/* By name, so that a ggml with members before or behind these is served too: what is not named is NULL, and optional.
 */
static const struct ggml_backend_buffer_i buffer_calls = {
    .free_buffer = free_buffer,
    .get_base = get_base,
    .memset_tensor = memset_tensor,
    .set_tensor = set_tensor,
    .get_tensor = get_tensor,
    .cpy_tensor = cpy_tensor,
    .clear = clear,
};

/* ------------------------------------------------------------------------------------------- the type */

static const char *get_name(ggml_backend_buffer_type_t type)
{
    (void)type;
    return "kvlazy";
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t bytes)
{
    held *h = calloc(1, sizeof *h);
    void *base = NULL;

    if (!h || kvlazy_arena_create(NULL, bytes, &h->arena, &base) != KVLAZY_OK) {
        free(h);
        return NULL;
    }
    h->base = base;
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(type, buffer_calls, h, bytes);
    if (!buffer) {
        (void)kvlazy_arena_destroy(h->arena);
        free(h);
    }
    return buffer;
}

/* So that no two tensors share a page: one that is shared stays as long as either needs it. */
static size_t get_alignment(ggml_backend_buffer_type_t type)
{
    (void)type;
    return kvlazy_page_bytes(NULL);
}

static bool is_host(ggml_backend_buffer_type_t type)
{
    (void)type;
    return true;
}

struct ggml_backend_buffer_type *kvlazy_ggml_buffer_type(void)
{
    /* ggml compares types by address and takes them as writable, but never writes one. */
    static struct ggml_backend_buffer_type type = {
        .iface = {.get_name = get_name,
                  .alloc_buffer = alloc_buffer,
                  .get_alignment = get_alignment,
                  .is_host = is_host},
    };

    return &type;
}

/* A buffer of no bytes was never allocated here: ggml makes it by itself, of our type, with nothing in it. */
kvlazy_arena *kvlazy_ggml_arena(const struct ggml_backend_buffer *buffer)
{
    const held *h = buffer && buffer->buft == kvlazy_ggml_buffer_type() ? buffer->context : NULL;

    return h ? h->arena : NULL;
}
