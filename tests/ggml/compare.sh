#!/bin/sh
# SPDX-License-Identifier: MIT
# The double of ggml against a real one: sizes, offsets, values and signatures that src/ggml relies on, and src/ggml
# itself compiled with the real headers.
#
#   compare.sh CC GGML_DIR       GGML_DIR is the sources of a ggml. Empty, or not there: the test is skipped (77)
#   compare.sh CC --self-test    changes a copy of the double in every way and expects to be told
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cc=$1 real=${2-}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# facts GGML_DIR: prints them.
facts()
{
    "$cc" -std=c11 -o "$dir/facts" -isystem "$1/include" -isystem "$1/src" "$here/facts.c" && "$dir/facts"
}

# compare GGML_DIR: fails where it is not as the double is, and shows what differs.
compare()
{
    facts "$here/double" >"$dir/double" && facts "$1" >"$dir/real" || return 1
    diff -u "$dir/double" "$dir/real"
}

# Each line is a change of one file of the double: file, what is replaced, by what.
self_test()
{
    n_wrong=0
    compare "$here/double" >/dev/null || { echo "the double differs from itself"; exit 1; }
    while IFS='|' read -r file from to; do
        rm -rf "$dir/other"
        cp -r "$here/double" "$dir/other"
        sed "s#$from#$to#" "$here/double/$file" >"$dir/other/$file"
        cmp -s "$here/double/$file" "$dir/other/$file" && echo "$file has no '$from'" && n_wrong=$((n_wrong + 1))
        compare "$dir/other" >/dev/null 2>&1 && echo "'$to' in $file is not noticed" && n_wrong=$((n_wrong + 1))
    done <<'LINES'
include/ggml.h|void \*data;|char pad[64]; void *data;
include/ggml.h|int64_t ne\[|int32_t ne[
include/ggml.h|GGML_MAX_DIMS 4|GGML_MAX_DIMS 5
include/ggml.h|GGML_TYPE_Q8_0 = 8|GGML_TYPE_Q8_0 = 9
include/ggml.h|int64_t ggml_blck_size|int ggml_blck_size
include/ggml-backend.h|bool ggml_backend_buffer_is_host|int ggml_backend_buffer_is_host
src/ggml-backend-impl.h|size_t (\*get_max_size).*|/* none */
src/ggml-backend-impl.h|void (\*clear)(ggml_backend_buffer_t buffer, uint8_t value)|void (*clear)(ggml_backend_buffer_t buffer, int value)
src/ggml-backend-impl.h|size_t size;|int before; size_t size;
LINES
    [ "$n_wrong" = 0 ] && echo "every change is noticed"
}

if [ "$real" = --self-test ]; then
    self_test
    exit
fi
[ -f "$real/src/ggml-backend-impl.h" ] || { echo "no real ggml: give its sources in KVLAZY_GGML_DIR"; exit 77; }
compare "$real" || exit 1
for source in "$root"/src/ggml/*.c; do
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Werror -fsyntax-only -I"$root/include" \
        -I"$root/src" -isystem "$real/include" -isystem "$real/src" "$source" || exit 1
done
echo "$(wc -l <"$dir/real") facts are the same"
