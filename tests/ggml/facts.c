/* SPDX-License-Identifier: MIT */
/*
 * What src/ggml relies on of a ggml, one fact a line: sizes, offsets, values and signatures. compare.sh compiles this
 * once with the double's headers and once with a real ggml's, and compares what is printed. Links with neither.
 */
#include <stddef.h>
#include <stdio.h>

#include <ggml-backend-impl.h>

#define SIZE(type) printf("sizeof(%s) %zu\n", #type, sizeof(type))
#define MEMBER(type, member) \
    printf("%s.%s at %zu, %zu bytes\n", #type, #member, offsetof(type, member), sizeof(((type *)0)->member))
#define VALUE(name) printf("%s %lld\n", #name, (long long)(name))
#define SIGNATURE(expression, type) \
    printf("%s is %s%s\n", #expression, _Generic((expression), type : "", default : "not "), #type)
#define CALL(of, member, type) SIGNATURE(((struct of *)0)->member, type)

typedef ggml_backend_buffer_type_t type_t;
typedef ggml_backend_buffer_t buffer_t;
typedef struct ggml_tensor tensor;

static void tell_tensor(void)
{
    SIZE(tensor);
    MEMBER(tensor, type);
    MEMBER(tensor, buffer);
    MEMBER(tensor, ne);
    MEMBER(tensor, nb);
    MEMBER(tensor, view_src);
    MEMBER(tensor, data);
    VALUE(GGML_MAX_DIMS);
    VALUE(GGML_TYPE_F32);
    VALUE(GGML_TYPE_F16);
    VALUE(GGML_TYPE_Q4_0);
    VALUE(GGML_TYPE_Q8_0);
    VALUE(GGML_TYPE_BF16);
}

static void tell_type(void)
{
    SIZE(struct ggml_backend_buffer_type_i);
    MEMBER(struct ggml_backend_buffer_type_i, get_name);
    MEMBER(struct ggml_backend_buffer_type_i, alloc_buffer);
    MEMBER(struct ggml_backend_buffer_type_i, get_alignment);
    MEMBER(struct ggml_backend_buffer_type_i, is_host);
    SIZE(struct ggml_backend_buffer_type);
    MEMBER(struct ggml_backend_buffer_type, iface);
    MEMBER(struct ggml_backend_buffer_type, device);
    MEMBER(struct ggml_backend_buffer_type, context);
    CALL(ggml_backend_buffer_type_i, get_name, const char *(*)(type_t));
    CALL(ggml_backend_buffer_type_i, alloc_buffer, buffer_t(*)(type_t, size_t));
    CALL(ggml_backend_buffer_type_i, get_alignment, size_t(*)(type_t));
    CALL(ggml_backend_buffer_type_i, is_host, bool (*)(type_t));
}

static void tell_buffer(void)
{
    SIZE(struct ggml_backend_buffer_i);
    MEMBER(struct ggml_backend_buffer_i, free_buffer);
    MEMBER(struct ggml_backend_buffer_i, get_base);
    MEMBER(struct ggml_backend_buffer_i, memset_tensor);
    MEMBER(struct ggml_backend_buffer_i, set_tensor);
    MEMBER(struct ggml_backend_buffer_i, get_tensor);
    MEMBER(struct ggml_backend_buffer_i, cpy_tensor);
    MEMBER(struct ggml_backend_buffer_i, clear);
    SIZE(struct ggml_backend_buffer);
    MEMBER(struct ggml_backend_buffer, iface);
    MEMBER(struct ggml_backend_buffer, buft);
    MEMBER(struct ggml_backend_buffer, context);
    MEMBER(struct ggml_backend_buffer, size);
    CALL(ggml_backend_buffer_i, free_buffer, void (*)(buffer_t));
    CALL(ggml_backend_buffer_i, get_base, void *(*)(buffer_t));
    CALL(ggml_backend_buffer_i, memset_tensor, void (*)(buffer_t, tensor *, uint8_t, size_t, size_t));
    CALL(ggml_backend_buffer_i, set_tensor, void (*)(buffer_t, tensor *, const void *, size_t, size_t));
    CALL(ggml_backend_buffer_i, get_tensor, void (*)(buffer_t, const tensor *, void *, size_t, size_t));
    CALL(ggml_backend_buffer_i, cpy_tensor, bool (*)(buffer_t, const tensor *, tensor *));
    CALL(ggml_backend_buffer_i, clear, void (*)(buffer_t, uint8_t));
}

/* The names alone are looked at, so that nothing need be linked. */
static void tell_functions(void)
{
    SIGNATURE(ggml_backend_buffer_init(NULL, (struct ggml_backend_buffer_i){0}, NULL, 0), buffer_t);
    SIGNATURE(ggml_backend_buffer_name(NULL), const char *);
    SIGNATURE(ggml_backend_buffer_is_host(NULL), bool);
    SIGNATURE(ggml_backend_buffer_get_type(NULL), type_t);
    SIGNATURE(ggml_blck_size(GGML_TYPE_F16), int64_t);
    SIGNATURE(ggml_type_size(GGML_TYPE_F16), size_t);
    SIGNATURE(ggml_row_size(GGML_TYPE_F16, INT64_C(1)), size_t);
    SIGNATURE(ggml_type_name(GGML_TYPE_F16), const char *);
    SIGNATURE(ggml_nbytes(NULL), size_t);
}

int main(void)
{
    tell_tensor();
    tell_type();
    tell_buffer();
    tell_functions();
    return 0;
}
