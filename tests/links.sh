#!/bin/sh
# SPDX-License-Identifier: MIT
# The files that pages name are there: targets of links, and names like core/evict.c, kvlazy/pool.h or bench/run. A name
# that leads nowhere is told with page and line.
#
#   links.sh PATH...       checks the .md files below these, from the root of the project
#   links.sh --self-test   names files that are there and files that are not
set -u

# names PAGE...: lines "page:line path", the path from the root.
names()
{
    awk '
    function tell(path) {
        sub(/#.*/, "", path)
        if (path != "")
            print FILENAME ":" FNR " " path
    }

    # Where a pattern stands in a line, and what does not belong to it is cut off by `clean`.
    function tell_all(line, pattern, before) {
        while (match(line, pattern)) {
            name = substr(line, RSTART, RLENGTH)
            rest = substr(line, RSTART + RLENGTH)
            if (RSTART == 1 || substr(line, RSTART - 1, 1) !~ /[A-Za-z0-9_\/.{}*-]/)
                tell(before name)
            line = rest
        }
    }

    FNR == 1 {
        dir = FILENAME ~ /\// ? FILENAME : ""
        sub(/[^\/]*$/, "", dir)
    }

    {
        line = $0
        while (match(line, /\]\([^)]*\)/)) {
            target = substr(line, RSTART + 2, RLENGTH - 3)
            line = substr(line, 1, RSTART) " " substr(line, RSTART + RLENGTH)
            if (target !~ /^[a-z]+:/ && target !~ /^#/)
                tell(dir target)
        }
        tell_all(line, "(base|host|memory|tokens|core|state|store|ggml|api|extra)/[a-z_]+[.][ch]", "src/")
        tell_all(line, "kvlazy/[a-z_]+[.]h", "include/")
        tell_all(line, "(src|include|bench|tests|docs)/[a-z_/-]+([.][a-z]+)?", "")
    }' "$@"
}

# check PAGE...: prints names that lead nowhere; fails if there are any.
check()
{
    names "$@" | {
        n_wrong=0
        while read -r place path; do
            [ -e "$path" ] || { echo "$place: there is no $path" && n_wrong=$((n_wrong + 1)); }
        done
        [ "$n_wrong" = 0 ]
    }
}

# check_below PATH...: the pages below some paths.
check_below()
{
    # No name of ours has a space.
    # shellcheck disable=SC2046
    check $(find "$@" -type f -name '*.md' | sort)
}

# Each case: a line of docs/page.md, and what is not there. "ok": everything is.
self_test()
{
    dir=$(mktemp -d) || exit 1
    trap 'rm -rf "$dir"' EXIT
    mkdir -p "$dir/docs" "$dir/src/core" "$dir/include/kvlazy" "$dir/bench"
    touch "$dir/src/core/evict.c" "$dir/include/kvlazy/pool.h" "$dir/bench/run" "$dir/docs/other.md"
    cd "$dir" || exit
    n_wrong=0
    while IFS='|' read -r text answer; do
        printf 'One line before.\n%s\n' "$text" >docs/page.md
        told=$(check_below docs)
        failed=$?
        case $answer:$failed:$told in
        ok:0:) ;;
        ok:*) echo "'$text' is fine but: $told" && n_wrong=$((n_wrong + 1)) ;;
        *:1:"docs/page.md:2: there is no $answer") ;;
        *) echo "'$text' should be told '$answer', not: '$told'" && n_wrong=$((n_wrong + 1)) ;;
        esac
    done <<'END'
In `core/evict.c`, and `kvlazy/pool.h`.|ok
In [this](../src/core/evict.c) and [that](other.md#part), [here](#part).|ok
[A page](https://example.org/core/none.c) elsewhere, run bench/run.|ok
In `core/none.c`, beside core/evict.c.|src/core/none.c
In src/core/none.c.|src/core/none.c
In `kvlazy/none.h`.|include/kvlazy/none.h
[This](none.md).|docs/none.md
bench/none --keys|bench/none
build/core/none.c and score/none.c|ok
END
    [ "$n_wrong" = 0 ] && echo "every rule is held"
}

case ${1-} in
--self-test) self_test ;;
'' | -*) echo "usage: links.sh PATH... | --self-test" >&2 && exit 2 ;;
*) check_below "$@" && echo "all names lead somewhere" ;;
esac
