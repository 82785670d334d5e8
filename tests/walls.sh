#!/bin/sh
# SPDX-License-Identifier: MIT
# The walls of the house, held against what was compiled: which file calls which, read off the symbols of the objects.
#
#   walls.sh NM OBJECT...           fails on a circle of calls, and on a call to a higher floor
#   walls.sh --table NM OBJECT...   prints the graph: a line a file, its floor, its depth, and the files it calls
#   walls.sh --doc DOC NM OBJECT... fails where the table in DOC is not the one that --table prints
#   walls.sh --write DOC NM OBJECT...   puts that table into DOC
#   walls.sh --self-test            breaks every rule once and expects to be told
#
# In DOC the table stands in the fence that follows the line <!-- walls -->.
#
# The floors, lowest first, are the folders of src. A file may call files of its own folder and of lower floors.
set -u
floors='base host memory tokens core state store ggml api extra'

# graph MODE: reads lines "file U|T symbol" and prints the table, or what is wrong; fails if anything is.
graph()
{
    floors=$floors mode=$1 awk '
    function floor_of(file) {
        sub(/\/.*/, "", file)
        return file in floor ? floor[file] : -1
    }

    # The longest way down from a file. A circle is told once, by the files on the way.
    function depth_of(file,    i, n, callee, d, deepest) {
        if (file in depth)
            return depth[file]
        if (file in on_way) {
            circle = file
            for (i = n_way; i > 0 && way[i] != file; i--)
                circle = way[i] " -> " circle
            wrong("a circle of calls: " file " -> " circle)
            return 0
        }
        on_way[file] = 1
        way[++n_way] = file
        n = split(calls[file], callee, " ")
        deepest = 0
        for (i = 1; i <= n; i++) {
            d = depth_of(callee[i]) + 1
            deepest = d > deepest ? d : deepest
        }
        n_way--
        delete on_way[file]
        return depth[file] = deepest
    }

    function wrong(text) {
        if (ENVIRON["mode"] != "table")
            print text
        n_wrong++
    }

    BEGIN {
        n_floor = split(ENVIRON["floors"], name, " ")
        for (i = 1; i <= n_floor; i++)
            floor[name[i]] = i
    }

    !($1 in seen) {
        seen[$1] = 1
        file[++n_file] = $1
        if (floor_of($1) < 0)
            wrong($1 " is on no floor: its folder is not in the list of " "tests/walls.sh")
    }

    $2 == "T" { home[$3] = $1 }
    $2 == "U" { use[++n_use] = $1 " " $3 }

    END {
        for (i = 1; i <= n_use; i++) {
            split(use[i], part, " ")
            from = part[1]
            to = home[part[2]]
            if (to == "" || to == from)
                continue
            if (!((from, to) in edge))
                calls[from] = calls[from] (calls[from] == "" ? "" : " ") to
            edge[from, to] = 1
            if (floor_of(to) > floor_of(from))
                wrong("a call upwards: " from " calls " part[2] " of " to)
        }
        for (i = 1; i <= n_file; i++)
            depth_of(file[i])
        if (ENVIRON["mode"] == "table")
            for (i = 1; i <= n_file; i++) {
                n = split(calls[file[i]], callee, " ")
                line = ""
                for (j = 1; j <= n; j++)
                    line = line " " callee[j]
                printf "%d %d %s%s\n", floor_of(file[i]), depth[file[i]], file[i], line
            }
        exit n_wrong > 0
    }'
}

# symbols NM OBJECT...: lines "folder/file U|T symbol" for our own symbols.
symbols()
{
    nm=$1
    shift
    for object; do
        file=${object##*/src/}
        "$nm" -P "$object" | awk -v file="${file%.c*}" '
            $1 ~ /^kvl(azy)?_/ && $2 == "U" { print file, "U", $1 }
            $1 ~ /^kvl(azy)?_/ && $2 ~ /^[TDBRW]$/ { print file, "T", $1 }'
    done
}

# The table as people read it: highest floor first, callees sorted.
table()
{
    symbols "$@" | graph table | sort -k1,1nr -k2,2nr -k3,3 | awk '
    $1 != last {
        folder = $3
        sub(/\/.*/, "", folder)
        printf("%s%s\n", (NR > 1 ? "\n" : ""), folder)
        last = $1
    }
    {
        self = $3
        folder = self
        sub(/\/.*/, "", folder)
        sub(/.*\//, "", self)
        n = 0
        for (i = 4; i <= NF; i++) {
            callee = $i
            sub("^" folder "/", "", callee)
            for (j = ++n; j > 1 && name[j - 1] > callee; j--)
                name[j] = name[j - 1]
            name[j] = callee
        }
        line = sprintf("  %2d %-14s", $2, self)
        for (i = 1; i <= n; i++) {
            if (length(line) + 1 + length(name[i]) > 118) {
                print line
                line = sprintf("%19s", "")
            }
            line = line " " name[i]
        }
        sub(/ +$/, "", line)
        print line
    }'
}

# doc_table DOC: the table as it stands in a page; fails where the page has no place for one.
doc_table()
{
    awk '
    /^<!-- walls -->$/ { inside = 1; next }
    inside && /^```/ { if (++n_fence == 2) exit; next }
    n_fence == 1
    END { exit n_fence != 2 }' "$1" && return
    echo "$1: there is no fence behind a line <!-- walls -->" >&2
    return 1
}

# check_doc DOC NM OBJECT...: the table in a page is the one of the objects.
check_doc()
{
    doc=$1
    shift
    found=$(doc_table "$doc") || return
    wanted=$(table "$@")
    [ "$wanted" != "$found" ] || return 0
    echo "$doc: the table of walls is not the one of the objects, which is:"
    echo "$wanted"
    return 1
}

# write_doc DOC NM OBJECT...: puts the table of the objects into a page.
write_doc()
{
    doc=$1
    shift
    doc_table "$doc" >/dev/null || return
    new=$(wanted=$(table "$@") awk '
    /^<!-- walls -->$/ { inside = 1 }
    inside && n_fence == 1 && !/^```/ { next }
    { print }
    inside && /^```/ {
        if (++n_fence == 1)
            print ENVIRON["wanted"]
        else
            inside = 0
    }' "$doc") || return
    printf '%s\n' "$new" >"$doc"
}

# The table of made-up objects goes into a page, and a page with another table is told.
doc_self_test()
{
    dir=$(mktemp -d) || exit 1
    trap 'rm -rf "$dir"' EXIT
    mkdir -p "$dir/src/core" "$dir/src/tokens"
    # shellcheck disable=SC2016 # for the script that stands for nm
    printf '#!/bin/sh\ncat "$2"\n' >"$dir/nm"
    chmod +x "$dir/nm"
    printf 'kvl_a U\nkvl_b T 0\n' >"$dir/src/core/evict.c.o"
    printf 'kvl_a T 0\n' >"$dir/src/tokens/cells.c.o"
    set -- "$dir/nm" "$dir/src/core/evict.c.o" "$dir/src/tokens/cells.c.o"
    # shellcheck disable=SC2016 # fences
    printf '```\nbefore\n```\n<!-- walls -->\n```\n   9 old\n```\nbehind\n\n```\nlast\n```\n' >"$dir/doc"
    # shellcheck disable=SC2016
    page=$(printf '```\nbefore\n```\n<!-- walls -->\n```\n%s\n```\nbehind\n\n```\nlast\n```' "$(table "$@")")
    check_doc "$dir/doc" "$@" >/dev/null && echo "an old table is not told" && n_wrong=$((n_wrong + 1))
    write_doc "$dir/doc" "$@" || n_wrong=$((n_wrong + 1))
    [ "$(cat "$dir/doc")" = "$page" ] || { echo "a table is not written where it belongs" && n_wrong=$((n_wrong + 1)); }
    check_doc "$dir/doc" "$@" || n_wrong=$((n_wrong + 1))
    echo "<!-- walls -->" >"$dir/doc"
    for act in check_doc write_doc; do
        $act "$dir/doc" "$@" 2>/dev/null && echo "$act: no fence, and it is not told" && n_wrong=$((n_wrong + 1))
    done
    rm -rf "$dir"
}

# Each case: lines of symbols, then a part of the answer. "ok": nothing is wrong.
self_test()
{
    n_wrong=0
    doc_self_test
    while IFS='|' read -r lines answer; do
        told=$(printf '%s\n' "$lines" | tr ';' '\n' | graph check)
        failed=$?
        case $answer:$failed:$told in
        ok:0:) ;;
        ok:*) echo "'$lines' is fine but: $told" && n_wrong=$((n_wrong + 1)) ;;
        *:1:*"$answer"*) ;;
        *) echo "'$lines' should be told '$answer', not: '$told'" && n_wrong=$((n_wrong + 1)) ;;
        esac
    done <<'END'
core/evict U kvl_a;core/window T kvl_a|ok
core/evict U kvl_a;tokens/cells T kvl_a;api/idle U kvl_b;core/evict T kvl_b|ok
core/evict U kvl_a;core/window T kvl_a;core/window U kvl_b;core/evict T kvl_b|a circle of calls
core/a U kvl_a;core/b T kvl_a;core/b U kvl_b;core/c T kvl_b;core/c U kvl_c;core/a T kvl_c|a circle of calls
tokens/cells U kvl_a;core/window T kvl_a|a call upwards: tokens/cells calls kvl_a of core/window
core/evict U kvl_enter;api/door T kvl_enter|a call upwards
attic/dust T kvl_a|attic/dust is on no floor
END
    [ "$n_wrong" = 0 ] && echo "every rule is held"
}

case ${1-} in
--self-test) self_test ;;
--table) shift && table "$@" ;;
--doc) shift && check_doc "$@" ;;
--write) shift && write_doc "$@" ;;
'' | -*) echo "usage: walls.sh [--table | --doc DOC | --write DOC] NM OBJECT... | --self-test" >&2 && exit 2 ;;
*) symbols "$@" | graph check && echo "the walls hold" ;;
esac
