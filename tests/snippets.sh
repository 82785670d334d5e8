#!/bin/sh
# SPDX-License-Identifier: MIT
# Examples that are meant for pasting, as they stand in the headers' comments and in docs/*.md: each is put into a
# function whose first lines declare what the example supposes, and compiled as C11 and as C++17. Pieces that are lines
# of tests/engine are held by embedding.sh. "..." leaves something out.
#
#   snippets.sh INCLUDE_DIR CC [CXX]
set -u
include=$1 cc=$2 cxx=${3-}
n_wrong=0 n_seen=0
cache='kvlazy_cache *cache = 0; kvlazy_params params; kvlazy_ubatch ubatch[4]; kvlazy_slot slot[4]; int ok = 0;
       int status = 0; uint32_t i = 0, n_ubatch = 4, n_kv = 0, stream = 0, kv_size = 0, n_layer = 1; uint64_t next_ms;
       kvlazy_layer layers[4]; kvlazy_tensor k, v;'
after='(void)ok; (void)status; (void)n_kv; (void)stream; (void)kv_size; (void)i; (void)slot; (void)v; (void)k;
       (void)n_layer; (void)layers; (void)next_ms; (void)params; (void)ubatch; (void)n_ubatch; (void)cache;'

# compile WHAT TEXT
compile()
{
    n_seen=$((n_seen + 1))
    printf '%s\n' "$2" | "$cc" -x c -std=c11 -Wall -Wextra -Wno-maybe-uninitialized -pedantic -Werror -D_GNU_SOURCE \
        -fsyntax-only -I"$include" - || { echo "$1: no clean C11"; n_wrong=$((n_wrong + 1)); }
    [ -n "$cxx" ] || return
    printf '%s\n' "$2" | "$cxx" -x c++ -std=c++17 -Wall -Wextra -Wno-maybe-uninitialized -pedantic -Werror \
        -D_GNU_SOURCE -fsyntax-only -I"$include" - || { echo "$1: no clean C++17"; n_wrong=$((n_wrong + 1)); }
}

# wrap TEXT DECLARATION AFTER: a whole file around it.
wrap()
{
    for name in kvlazy engine_cells arena ggml mask pool reaper state store; do
        echo "#include <kvlazy/$name.h>"
    done
    printf '#include <string.h>\nvoid example(void);\nvoid example(void)\n{\n%s\n%s\n%s\n%s\n%s\n}\n' "$cache" "$2" "$1" "${3-}" "$after"
}

# header NAME PATTERN DECLARATION [AFTER]: the indented lines after the first line of the header that has the pattern.
header()
{
    text=$(awk -v pattern="$2" '
        index($0, pattern) { found = 1 }
        found && /^ \*     / { inside = 1; sub(/^ \*     /, ""); sub(/\.\.\..*$/, ""); print; next }
        inside && !/^ \*$/ { exit }
    ' "$include/kvlazy/$1.h")
    [ -n "$text" ] || { echo "$1.h: no example after \"$2\""; n_wrong=$((n_wrong + 1)); return; }
    compile "$1.h, $2" "$(wrap "$text" "$3" "${4-}")"
}

# page NAME NUMBER: the NUMBER-th piece of C of a page.
page()
{
    awk -v number="$2" '/^```c$/ { inside = ++n == number; next } /^```$/ { inside = 0 } inside { sub(/^ *\.\.\.$/, ""); print }' "docs/$1"
}

# guide NUMBER...: those pieces of C++ of the guide to llama.cpp.
guide()
{
    for number in "$@"; do
        awk -v number="$number" '/^```cpp$/ { inside = ++n == number; next } /^```$/ { inside = 0 } inside' docs/llama-cpp.md
    done
}

# The guide's functions are members of a class of llama.cpp. A double of it, and of the ggml it uses, stands in.
compile_guide()
{
    n_seen=$((n_seen + 1))
    {
        sed '/^class members of the guide$/,$d' tests/ggml/llama_double.txt
        guide 1
        sed '1,/^class members of the guide$/d; /^body of the guide$/,$d' tests/ggml/llama_double.txt
        guide 2
        sed '1,/^body of the guide$/d; /^server of the guide$/,$d' tests/ggml/llama_double.txt
        guide 3 4 5 6
        sed '1,/^server of the guide$/d; /^end of the guide$/,$d' tests/ggml/llama_double.txt
        guide 7
        sed '1,/^end of the guide$/d' tests/ggml/llama_double.txt
    } | "$cxx" -x c++ -std=c++17 -Wall -Wextra -pedantic -Werror -fsyntax-only -I"$include" \
        -isystem tests/ggml/double/include - || { echo "docs/llama-cpp.md: no clean C++17"; n_wrong=$((n_wrong + 1)); }
}

header kvlazy 'LIFE CYCLE' 'uint32_t layer = 0;'
header kvlazy '5. Linked caches' 'kvlazy_cache *full = 0, *window = 0; kvlazy_slot slot_full[4], slot_window[4];' \
    '(void)slot_full; (void)slot_window;'
header engine_cells 'LIFE CYCLE' 'uint32_t n_used = 0, n_token = 1, n = 1, end = 1, from = 0, cell[4] = {0, 0, 0, 0};' \
    '(void)n_used; (void)n_token; (void)n; (void)end; (void)from; (void)cell;'
header arena 'kvlazy_arena_create' 'size_t n_bytes = 0; kvlazy_arena *arena; void *base;'
header ggml 'LIFE CYCLE' 'void *ctx = 0; struct ggml_tensor *k_cache[4], *v_cache[4];
    struct ggml_backend_buffer *buffer; kvlazy_ggml_rows rows[4]; bool v_trans = false; uint32_t n_stream = 1;
    struct ggml_backend_buffer *ggml_backend_alloc_ctx_tensors_from_buft(void *,
        struct ggml_backend_buffer_type *); void ggml_backend_buffer_free(struct ggml_backend_buffer *);'
header mask 'kvlazy_mask_info mask' 'void *rows = 0; size_t rows_bytes = 0;'
header pool 'kvlazy_pool_create' 'kvlazy_pool *pool;'
header reaper 'kvlazy_reaper_create' 'kvlazy_reaper *reaper;'
header state 'params.model_tag' 'char digest[32]; int32_t tokens[8]; size_t n = 8, room; kvlazy_seq_id seq = 0;'
header store 'LIFE CYCLE' 'kvlazy_store *store = 0; int32_t token[8]; uint32_t n = 8, n_have = 0, n_live, n_saved;
    kvlazy_seq_id seq = 0;'

compile 'docs/idle.md, 1' "$(wrap "$(page idle.md 1)" '')"
compile 'docs/idle.md, 2' "$(for h in stdbool.h string.h sys/epoll.h sys/timerfd.h time.h unistd.h kvlazy/kvlazy.h; do
    echo "#include <$h>"; done
    echo 'typedef struct loop { kvlazy_cache *cache; int epoll_fd, timer_fd, request_fd; } loop;
          void serve(loop *l); bool turn(loop *l);'
    page idle.md 2
    echo 'bool turn(loop *l) { before_sleep(l); return sleep_and_serve(l); }')"
compile 'docs/state.md, 1' "$(wrap "$(page state.md 1)" 'struct s { int32_t *token; size_t n, n_max; } one = {0, 0, 0}, *slot_of = &one;
    const char *path = ""; kvlazy_seq_id seq = 0;
#define slot slot_of' '
#undef slot')"
compile 'docs/store.md, 1' "$(page store.md 1)"
compile 'docs/store.md, 2' "$(page store.md 2)"
compile 'docs/tensors.md, 1' "$(wrap "{
$(page tensors.md 1)
}" 'kvlazy_arena *arena; void *base; kvlazy_tensor k[4], v[4];' | sed 's/ kvlazy_tensor k, v;$//')"
# The recipes: tests/core/test_recipes.c runs them as C.
n=2
while [ -n "$(page tensors.md $n)" ]; do
    compile "docs/tensors.md, $n" "$(wrap "$(page tensors.md $n)" 'kvlazy_arena *arena, *k_arena, *v_arena; size_t k_bytes = 1,
    v_bytes = 1, head_bytes = 1; void *base, *k_base, *v_base; kvlazy_tensor k[4], v[4]; kvlazy_cell_ops told;
    kvlazy_cache *quarter, *slow; uint32_t n_head = 1, row_bytes = 1, n_old = 0, n_new = 1, n_kept = 0, pos = 0, n = 1,
    n_ring = 1, n_block = 1, n_block_token = 1, block[4] = {0, 0, 0, 0};' '(void)arena; (void)k_arena; (void)v_arena;
    (void)k_bytes; (void)v_bytes; (void)head_bytes; (void)base; (void)k_base; (void)v_base; (void)told; (void)quarter;
    (void)slow; (void)n_head; (void)row_bytes; (void)n_old; (void)n_new; (void)n_kept; (void)pos; (void)n; (void)n_ring;
    (void)n_block; (void)n_block_token; (void)block;' | sed 's/ kvlazy_tensor k, v;$//')"
    n=$((n + 1))
done

[ -z "$cxx" ] || compile_guide

[ "$n_seen" -ge 21 ] && [ "$n_wrong" = 0 ]
