/* SPDX-License-Identifier: MIT */
/* What tests do with the double of ggml: buffers come and go, tensors get a shape and a place, views other shapes. */
#ifndef DOUBLE_H
#define DOUBLE_H

#include <ggml-backend-impl.h>

/* As ggml does it: of 0 bytes a buffer that has no functions and is nothing, without asking its type. */
ggml_backend_buffer_t double_alloc(ggml_backend_buffer_type_t type, size_t bytes);
void double_free(ggml_backend_buffer_t buffer);

/* A tensor without gaps, and without data. */
void double_tensor(struct ggml_tensor *t, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3);
void double_place(struct ggml_tensor *t, ggml_backend_buffer_t buffer, size_t offset);

/* A view of all of `root`, and two dimensions of a tensor exchanged. */
void double_view(struct ggml_tensor *view, struct ggml_tensor *root);
void double_swap(struct ggml_tensor *t, int a, int b);

#endif
