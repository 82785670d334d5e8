#!/bin/sh
# SPDX-License-Identifier: MIT
# What the libraries show to a linker.
#
#   symbols.sh NM SHARED STATIC HEADER...
set -u
nm=$1 shared=$2 static=$3
shift 3
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n_wrong=0

# wrong RULE FILE: FILE lists what breaks the rule and is empty when all is well.
wrong()
{
    [ -s "$2" ] || return
    echo "$1:"
    sed 's/^/    /' "$2"
    n_wrong=$((n_wrong + 1))
}

# Sanitizers add names of their own, which begin with two underscores.
names()
{
    awk 'NF == 3 && $3 !~ /^__/ { print $3 }' | sort -u
}

"$nm" -D --defined-only "$shared" | names >"$dir/exported"
"$nm" -g --defined-only "$static" | names >"$dir/global"
cat "$@" | sed -n 's/^KVLAZY_API .*[ *]\(kvlazy_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$dir/declared"

for list in exported global declared; do
    [ -s "$dir/$list" ] || { echo "no names that are $list: is this still the right way to ask?"; exit 1; }
done

grep -v '^kvlazy_' "$dir/exported" >"$dir/alien"
wrong "exported by the shared library, but not kvlazy_" "$dir/alien"
comm -23 "$dir/exported" "$dir/declared" >"$dir/secret"
wrong "exported, but declared in no public header" "$dir/secret"
comm -13 "$dir/exported" "$dir/declared" >"$dir/promised"
wrong "declared in a public header, but not exported" "$dir/promised"
grep -v -e '^kvl_' -e '^kvlazy_' "$dir/global" >"$dir/private"
wrong "global in the static library, but neither kvl_ nor kvlazy_" "$dir/private"

[ "$n_wrong" = 0 ] && echo "$(wc -l <"$dir/exported") functions are exported, $(wc -l <"$dir/global") names are global"
