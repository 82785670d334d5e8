/* SPDX-License-Identifier: MIT */
/* A double of ggml for the tests of src/ggml: what that part of kvlazy needs of ggml-backend.h. See ggml.h beside it.
 */
#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
typedef struct ggml_backend_device *ggml_backend_dev_t;

enum ggml_status { GGML_STATUS_SUCCESS = 0 };
enum ggml_backend_buffer_usage { GGML_BACKEND_BUFFER_USAGE_ANY = 0 };

const char *ggml_backend_buffer_name(ggml_backend_buffer_t buffer);
bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer);
ggml_backend_buffer_type_t ggml_backend_buffer_get_type(ggml_backend_buffer_t buffer);

#ifdef __cplusplus
}
#endif
