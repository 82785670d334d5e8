/* SPDX-License-Identifier: MIT */
/* The functions of the double of ggml, as far as src/ggml calls them. Nothing of ggml is in here. */
#include "double.h"

#include <stdlib.h>
#include <string.h>

static const struct type {
    enum ggml_type type;
    const char *name;
    int64_t n_value; /* of a block */
    size_t bytes;
} types[] = {
    {GGML_TYPE_F32, "f32", 1, 4},     {GGML_TYPE_F16, "f16", 1, 2},   {GGML_TYPE_Q4_0, "q4_0", 32, 18},
    {GGML_TYPE_Q8_0, "q8_0", 32, 34}, {GGML_TYPE_BF16, "bf16", 1, 2},
};

static const struct type *find(enum ggml_type type)
{
    const struct type *t = types;

    while (t->type != type)
        t++;
    return t;
}

int64_t ggml_blck_size(enum ggml_type type)
{
    return find(type)->n_value;
}

size_t ggml_type_size(enum ggml_type type)
{
    return find(type)->bytes;
}

const char *ggml_type_name(enum ggml_type type)
{
    return find(type)->name;
}

/* ggml ends the process where a row ends inside a block: kvlazy must not ask for one. */
size_t ggml_row_size(enum ggml_type type, int64_t ne)
{
    if (ne % ggml_blck_size(type) != 0)
        abort();
    return (size_t)(ne / ggml_blck_size(type)) * ggml_type_size(type);
}

size_t ggml_nbytes(const struct ggml_tensor *t)
{
    size_t bytes = ggml_row_size(t->type, t->ne[0]);

    for (int d = 1; d < GGML_MAX_DIMS; d++)
        bytes += (size_t)(t->ne[d] - 1) * t->nb[d];
    return bytes;
}

const char *ggml_backend_buffer_name(ggml_backend_buffer_t buffer)
{
    return buffer->buft->iface.get_name(buffer->buft);
}

bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer)
{
    return buffer->buft->iface.is_host && buffer->buft->iface.is_host(buffer->buft);
}

ggml_backend_buffer_type_t ggml_backend_buffer_get_type(ggml_backend_buffer_t buffer)
{
    return buffer->buft;
}

ggml_backend_buffer_t double_alloc(ggml_backend_buffer_type_t type, size_t bytes)
{
    struct ggml_backend_buffer_i nothing;

    memset(&nothing, 0, sizeof nothing);
    return bytes == 0 ? ggml_backend_buffer_init(type, nothing, NULL, 0) : type->iface.alloc_buffer(type, bytes);
}

ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t buft, struct ggml_backend_buffer_i iface,
                                               void *context, size_t size)
{
    struct ggml_backend_buffer *buffer = calloc(1, sizeof *buffer);

    if (buffer) {
        buffer->iface = iface;
        buffer->buft = buft;
        buffer->context = context;
        buffer->size = size;
    }
    return buffer;
}

void double_free(ggml_backend_buffer_t buffer)
{
    if (buffer && buffer->iface.free_buffer)
        buffer->iface.free_buffer(buffer);
    free(buffer);
}

void double_tensor(struct ggml_tensor *t, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3)
{
    memset(t, 0, sizeof *t);
    t->type = type;
    t->ne[0] = ne0;
    t->ne[1] = ne1;
    t->ne[2] = ne2;
    t->ne[3] = ne3;
    t->nb[0] = ggml_type_size(type);
    t->nb[1] = ggml_row_size(type, ne0);
    t->nb[2] = t->nb[1] * (size_t)ne1;
    t->nb[3] = t->nb[2] * (size_t)ne2;
}

void double_place(struct ggml_tensor *t, ggml_backend_buffer_t buffer, size_t offset)
{
    t->buffer = buffer;
    t->data = buffer->iface.get_base ? (char *)buffer->iface.get_base(buffer) + offset : NULL;
}

void double_view(struct ggml_tensor *view, struct ggml_tensor *root)
{
    *view = *root;
    view->view_src = root;
    view->buffer = NULL;
}

void double_swap(struct ggml_tensor *t, int a, int b)
{
    int64_t ne = t->ne[a];
    size_t nb = t->nb[a];

    t->ne[a] = t->ne[b];
    t->nb[a] = t->nb[b];
    t->ne[b] = ne;
    t->nb[b] = nb;
}
