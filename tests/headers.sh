#!/bin/sh
# SPDX-License-Identifier: MIT
# Every public header compiles alone, without a warning, as C11 and as C++17.
#
#   headers.sh INCLUDE_DIR CC [CXX]
set -u
include=$1 cc=$2 cxx=${3-}
n_wrong=0

# clean HEADER COMPILER LANGUAGE STANDARD
clean()
{
    echo "#include <$1>" | "$2" -x "$3" "-std=$4" -Wall -Wextra -pedantic -Werror -fsyntax-only -I"$include" - && return
    echo "$1 is no clean $4"
    n_wrong=$((n_wrong + 1))
}

for header in "$include"/kvlazy/*.h; do
    name=kvlazy/${header##*/}
    clean "$name" "$cc" c c11
    [ -z "$cxx" ] || clean "$name" "$cxx" c++ c++17
done
[ "$n_wrong" = 0 ]
