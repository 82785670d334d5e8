// SPDX-License-Identifier: MIT
// A stranger's program in C++: puts one token through the hooks, uses each optional header, and prints the version.
#include <kvlazy/arena.h>
#include <kvlazy/engine_cells.h>
#include <kvlazy/kvlazy.h>
#include <kvlazy/mask.h>
#include <kvlazy/pool.h>
#include <kvlazy/reaper.h>

#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>

static void must(int status)
{
    if (status != KVLAZY_OK)
        throw std::runtime_error(kvlazy_status_name(status));
}

static void one_token(kvlazy_cache *cache)
{
    const kvlazy_pos pos = 0;
    const kvlazy_seq_id seq = 0;
    kvlazy_ubatch ubatch{};
    kvlazy_slot slot{};
    kvlazy_tensor k{};

    ubatch.n_token = 1;
    ubatch.pos = &pos;
    ubatch.seq = &seq;
    must(kvlazy_init_batch(cache));
    must(kvlazy_prepare(cache, &ubatch, 1, &slot));
    must(kvlazy_apply_ubatch(cache, &slot, &ubatch));
    must(kvlazy_k(cache, 0, &k));

    char *row = static_cast<char *>(k.data) + slot.stream[0] * k.stream_stride + slot.cell[0] * k.cell_stride;
    std::memset(row, 1, k.row_bytes);
    must(kvlazy_end_batch(cache));
    must(kvlazy_check(cache, nullptr));
    if (kvlazy_seq_pos_max(cache, 0) != 0)
        throw std::runtime_error("the token is not there");
}

static void each_part(kvlazy_cache *cache)
{
    kvlazy_arena *arena = nullptr;
    kvlazy_pool *pool = nullptr;
    void *base = nullptr;

    must(kvlazy_arena_create(nullptr, kvlazy_page_bytes(nullptr), &arena, &base));
    must(kvlazy_arena_destroy(arena));
    must(kvlazy_pool_create(1 << 20, &pool));
    must(kvlazy_pool_destroy(pool));
    kvlazy_reaper_destroy(nullptr);
    if (kvlazy_touch(cache, 0, 1) != KVLAZY_ENOTSUP) // it keeps its cells itself
        throw std::runtime_error("cells of the library's were touched");
    if (kvlazy_mask(cache, nullptr, nullptr, nullptr) != KVLAZY_EINVAL)
        throw std::runtime_error("a mask of no slot was filled");
}

int main()
try {
    kvlazy_layer layer{};
    kvlazy_params params;
    kvlazy_cache *cache = nullptr;

    layer.k_row_bytes = layer.v_row_bytes = 64;
    kvlazy_params_init(&params);
    params.kv_size = 64;
    params.layers = &layer;
    params.n_layer = 1;
    must(kvlazy_create(&params, &cache));
    std::unique_ptr<kvlazy_cache, decltype(&kvlazy_destroy)> owner(cache, kvlazy_destroy);

    one_token(cache);
    each_part(cache);
    std::cout << "kvlazy " << kvlazy_version_string() << ": success\n";
    return kvlazy_version() == KVLAZY_VERSION ? 0 : 1;
} catch (const std::exception &e) {
    std::cerr << e.what() << '\n';
    return 1;
}
