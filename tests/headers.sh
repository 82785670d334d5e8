#!/bin/sh
# SPDX-License-Identifier: MIT
# The public headers as a stranger meets them, each check as C11 and as C++17, without a warning:
#  - Each header compiles alone, and twice in one file.
#  - Each optional part includes kvlazy.h, so that a file which includes the part alone can create a cache.
#  - All of them compile together in every rotation of their order: none needs another to come first.
#  - Examples that are meant for pasting compile in both languages.
#  - kvlazy.h declares its first function within its first 120 lines.
#
#   headers.sh INCLUDE_DIR CC [CXX]
set -u
include=$1 cc=$2 cxx=${3-}
parts='arena engine_cells mask pool reaper state'
examples='tests/engine/example.c tests/engine/embedding.c'
warnings='-Wall -Wextra -Wshadow -pedantic -Werror'
n_wrong=0

wrong()
{
    echo "$1"
    n_wrong=$((n_wrong + 1))
}

# check WHAT TEXT: the text is clean in both languages. Examples ask POSIX for more than C has, hence _GNU_SOURCE.
check()
{
    # The words of $warnings are words.
    # shellcheck disable=SC2086
    printf '%s\n' "$2" | "$cc" -x c -std=c11 $warnings -D_GNU_SOURCE -fsyntax-only -I"$include" - ||
        wrong "$1: no clean C11"
    [ -n "$cxx" ] || return
    # shellcheck disable=SC2086
    printf '%s\n' "$2" | "$cxx" -x c++ -std=c++17 $warnings -D_GNU_SOURCE -fsyntax-only -I"$include" - ||
        wrong "$1: no clean C++17"
}

# includes NAME...: the lines that include them, in this order.
includes()
{
    printf '#include <%s>\n' "$@"
}

names=$(cd "$include" && echo kvlazy/*.h)
n_name=$(echo "$names" | wc -w)

for name in $names; do
    check "$name alone" "$(includes "$name")"
    check "$name twice" "$(includes "$name" "$name")"
done

for part in $parts; do
    check "$part.h without kvlazy.h before it" "$(includes "kvlazy/$part.h")
        int make(kvlazy_cache **cache);
        int make(kvlazy_cache **cache) { kvlazy_params p; kvlazy_params_init(&p); return kvlazy_create(&p, cache) == KVLAZY_OK; }"
done

# The list turns by one name a round, so that each name stands first once, and last once.
round=0
while [ "$round" -lt "$n_name" ]; do
    # shellcheck disable=SC2086
    check "the order $names" "$(includes $names)"
    names="${names#* } ${names%% *}"
    round=$((round + 1))
done

for example in $examples; do
    check "$example" "$(cat "$example")"
done

first=$(awk '/^KVLAZY_API/ { print FNR; exit }' "$include/kvlazy/kvlazy.h")
[ "${first:-999}" -le 120 ] || wrong "kvlazy.h declares its first function in line ${first:-none}"
[ "$n_wrong" = 0 ]
