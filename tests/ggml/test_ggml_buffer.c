/* SPDX-License-Identifier: MIT */
/* The buffer type of kvlazy/ggml.h, called as ggml calls it, over a double of ggml and this host's memory. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kvlazy/ggml.h>

#include "double.h"
#include "expect.h"

enum { N_PAGE = 64 };

static ggml_backend_buffer_t new_buffer(size_t bytes)
{
    ggml_backend_buffer_t buffer = double_alloc(kvlazy_ggml_buffer_type(), bytes);

    assert_non_null(buffer);
    return buffer;
}

static unsigned char *base_of(ggml_backend_buffer_t buffer)
{
    return buffer->iface.get_base(buffer);
}

/* Pages of a buffer that are in RAM, of those that go back whole; the kernel tells its own smallest ones. */
static size_t n_resident(ggml_backend_buffer_t buffer)
{
    const size_t small = (size_t)sysconf(_SC_PAGESIZE), each = kvlazy_page_bytes(NULL) / small;
    unsigned char *in_ram = calloc(buffer->size / small + 1, 1);
    size_t n = 0;

    assert_non_null(in_ram);
    assert_int_equal(mincore(base_of(buffer), buffer->size, in_ram), 0);
    for (size_t i = 0; i * small < buffer->size; i += each)
        n += in_ram[i] & 1;
    free(in_ram);
    return n;
}

static bool reads(const unsigned char *at, unsigned char value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != value)
            return false;
    return true;
}

static void the_type_is_one_and_of_the_host(void **state)
{
    ggml_backend_buffer_type_t type = kvlazy_ggml_buffer_type();

    (void)state;
    assert_ptr_equal(type, kvlazy_ggml_buffer_type());
    assert_string_equal(type->iface.get_name(type), "kvlazy");
    assert_true(type->iface.is_host(type));
    assert_int_equal(type->iface.get_alignment(type), kvlazy_page_bytes(NULL));
    assert_null(type->device);
}

static void a_buffer_is_an_arena_that_costs_nothing(void **state)
{
    const size_t bytes = N_PAGE * kvlazy_page_bytes(NULL);
    ggml_backend_buffer_t buffer = new_buffer(bytes);

    (void)state;
    assert_int_equal(buffer->size, bytes);
    assert_non_null(kvlazy_ggml_arena(buffer));
    assert_int_equal((uintptr_t)base_of(buffer) % kvlazy_page_bytes(NULL), 0);
    buffer->iface.clear(buffer, 0);
    assert_int_equal(n_resident(buffer), 0);
    double_free(buffer);
}

static void more_than_an_address_holds_is_refused(void **state)
{
    ggml_backend_buffer_type_t type = kvlazy_ggml_buffer_type();

    (void)state;
    assert_null(type->iface.alloc_buffer(type, SIZE_MAX));
}

static void other_buffers_have_no_arena(void **state)
{
    struct ggml_backend_buffer_type foreign = {.device = NULL};
    struct ggml_backend_buffer buffer = {.buft = &foreign, .context = &foreign};
    ggml_backend_buffer_t empty = new_buffer(0);

    (void)state;
    assert_null(kvlazy_ggml_arena(NULL));
    assert_null(kvlazy_ggml_arena(&buffer));
    assert_null(kvlazy_ggml_arena(empty));
    double_free(empty);
}

static void clearing_to_zero_gives_pages_back(void **state)
{
    ggml_backend_buffer_t buffer = new_buffer(N_PAGE * kvlazy_page_bytes(NULL));

    (void)state;
    buffer->iface.clear(buffer, 7);
    assert_int_equal(n_resident(buffer), N_PAGE);
    assert_true(reads(base_of(buffer), 7, buffer->size));
    buffer->iface.clear(buffer, 0);
    assert_int_equal(n_resident(buffer), 0);
    assert_true(reads(base_of(buffer), 0, buffer->size));
    double_free(buffer);
}

/* The whole pages of the part go; the bytes of its first and last page are cleared, and those around it are kept. */
static void a_part_of_a_tensor_is_cleared_alone(void **state)
{
    const size_t page = kvlazy_page_bytes(NULL), begin = page + 100, bytes = 4 * page, first = 2 * page + 1;
    ggml_backend_buffer_t buffer = new_buffer(N_PAGE * page);
    unsigned char *base = base_of(buffer);
    struct ggml_tensor t;

    (void)state;
    double_tensor(&t, GGML_TYPE_F16, (int64_t)page, 10, 1, 1);
    double_place(&t, buffer, page);
    memset(base, 7, buffer->size);
    buffer->iface.memset_tensor(buffer, &t, 0, first - page, bytes);
    assert_true(reads(base, 7, first));
    assert_true(reads(base + first, 0, bytes));
    assert_true(reads(base + first + bytes, 7, buffer->size - first - bytes));
    memset(base, 7, buffer->size);
    buffer->iface.memset_tensor(buffer, &t, 0, begin - page, bytes);
    assert_int_equal(n_resident(buffer), N_PAGE - 3);
    buffer->iface.memset_tensor(buffer, &t, 9, 0, page);
    assert_true(reads(base + page, 9, page));
    double_free(buffer);
}

static void bytes_go_in_and_out(void **state)
{
    ggml_backend_buffer_t buffer = new_buffer(N_PAGE * kvlazy_page_bytes(NULL));
    struct ggml_tensor t;
    unsigned char in[100], out[100];

    (void)state;
    double_tensor(&t, GGML_TYPE_F16, 512, 8, 1, 1);
    double_place(&t, buffer, kvlazy_page_bytes(NULL));
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i + 1);
    buffer->iface.set_tensor(buffer, &t, in, 33, sizeof in);
    assert_memory_equal((char *)t.data + 33, in, sizeof in);
    buffer->iface.get_tensor(buffer, &t, out, 33, sizeof out);
    assert_memory_equal(in, out, sizeof in);
    double_free(buffer);
}

static bool of_a_device(ggml_backend_buffer_type_t type)
{
    (void)type;
    return false;
}

/* From memory of the host, a view too; what lies on a device is left to ggml. */
static void tensors_are_copied_from_the_host_alone(void **state)
{
    ggml_backend_buffer_t buffer = new_buffer(N_PAGE * kvlazy_page_bytes(NULL));
    struct ggml_backend_buffer_type device = {.iface = {.is_host = of_a_device}};
    struct ggml_backend_buffer far_buffer = {.buft = &device};
    struct ggml_tensor from, to, view;

    (void)state;
    double_tensor(&from, GGML_TYPE_Q8_0, 64, 8, 1, 1);
    double_place(&from, buffer, 0);
    memset(from.data, 5, ggml_nbytes(&from));
    to = from;
    double_place(&to, buffer, kvlazy_page_bytes(NULL));
    double_view(&view, &from);
    assert_true(buffer->iface.cpy_tensor(buffer, &view, &to));
    assert_true(reads(to.data, 5, 8 * 68));
    assert_false(reads(to.data, 5, 8 * 68 + 1));
    from.buffer = &far_buffer;
    assert_false(buffer->iface.cpy_tensor(buffer, &from, &to));
    double_free(buffer);
}

/* The cache may still write there, so the address space outlives its buffer. */
static void a_buffer_that_is_freed_too_early_keeps_its_memory(void **state)
{
    ggml_backend_buffer_t buffer = new_buffer(N_PAGE * kvlazy_page_bytes(NULL));
    kvlazy_arena *arena = kvlazy_ggml_arena(buffer);
    kvlazy_ggml_rows rows = {.struct_size = sizeof rows};
    kvlazy_params params;
    kvlazy_cache *cache;
    struct ggml_tensor k;

    (void)state;
    double_tensor(&k, GGML_TYPE_F16, 64, 64, 1, 1);
    double_place(&k, buffer, 0);
    ok(kvlazy_ggml_layer(&k, NULL, false, 64, 1, &rows));
    kvlazy_params_init(&params);
    params.kv_size = 64;
    params.layers = &rows.layer;
    params.n_layer = 1;
    ok(kvlazy_create(&params, &cache));
    double_free(buffer);
    memset(k.data, 1, 64 * 128);
    expect(kvlazy_arena_destroy(arena), KVLAZY_EBUSY);
    kvlazy_destroy(cache);
    ok(kvlazy_arena_destroy(arena));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_type_is_one_and_of_the_host),
        cmocka_unit_test(a_buffer_is_an_arena_that_costs_nothing),
        cmocka_unit_test(more_than_an_address_holds_is_refused),
        cmocka_unit_test(other_buffers_have_no_arena),
        cmocka_unit_test(clearing_to_zero_gives_pages_back),
        cmocka_unit_test(a_part_of_a_tensor_is_cleared_alone),
        cmocka_unit_test(bytes_go_in_and_out),
        cmocka_unit_test(tensors_are_copied_from_the_host_alone),
        cmocka_unit_test(a_buffer_that_is_freed_too_early_keeps_its_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
