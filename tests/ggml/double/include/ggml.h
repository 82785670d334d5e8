/* SPDX-License-Identifier: MIT */
/*
 * A double of ggml for the tests of src/ggml: what that part of kvlazy needs of ggml.h, written down anew. Names, order
 * and sizes are those of ggml 0.18; tests/ggml/compare.sh holds them against a real one. tests/ggml/double.c has the
 * functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGML_MAX_DIMS 4
#define GGML_MAX_SRC 10
#define GGML_MAX_NAME 64
#define GGML_MAX_OP_PARAMS 64

#ifdef __cplusplus
extern "C" {
#endif

/* The types that a K/V cache is made of; the others of ggml fill the gaps. */
enum ggml_type {
    GGML_TYPE_F32 = 0,
    GGML_TYPE_F16 = 1,
    GGML_TYPE_Q4_0 = 2,
    GGML_TYPE_Q8_0 = 8,
    GGML_TYPE_BF16 = 30,
};

enum ggml_op { GGML_OP_NONE = 0 };

struct ggml_backend_buffer;

struct ggml_tensor {
    enum ggml_type type;
    struct ggml_backend_buffer *buffer;
    int64_t ne[GGML_MAX_DIMS]; /* elements of each dimension */
    size_t nb[GGML_MAX_DIMS];  /* bytes from one to the next; of dimension 0, from one block to the next */
    enum ggml_op op;
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
    int32_t flags;
    struct ggml_tensor *src[GGML_MAX_SRC];
    struct ggml_tensor *view_src; /* what it is a view of */
    size_t view_offs;
    void *data;
    char name[GGML_MAX_NAME];
    void *extra;
    char padding[8];
};

int64_t ggml_blck_size(enum ggml_type type);
size_t ggml_type_size(enum ggml_type type);
size_t ggml_row_size(enum ggml_type type, int64_t ne);
const char *ggml_type_name(enum ggml_type type);
size_t ggml_nbytes(const struct ggml_tensor *tensor);

#ifdef __cplusplus
}
#endif
