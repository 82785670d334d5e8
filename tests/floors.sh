#!/bin/sh
# SPDX-License-Identifier: MIT
# The floors of docs/design.md as data, held against the sources. A broken rule is named with file and line.
#
#   floors.sh SRC_DIR       checks every .c and .h file there
#   floors.sh --self-test   breaks every rule once and expects to be told
set -u

# A file includes its own header, headers of lower floors, and of its own floor only those in the last column.
# What else it may do hangs on its kind:
#   plain   ISO C and libbsd
#   pure    the same, but nothing that reads or writes text or files
#   arena   plain, and alone in calling the table of kvlazy/mem.h
#   order   plain, and <pthread.h>, and now_ms of that table
#   os      any header of the system, and its clock
table='
base       0  plain
bits       0  plain  base.h
index      0  plain  base.h
log        0  plain  base.h
params     0  plain  base.h log.h
status     0  plain  base.h
histogram  0  plain  base.h
version    0  plain  base.h
limits_linux 0 os    base.h
wait       0  order  base.h
wait_linux 0  os     base.h wait.h limits_linux.h
geometry   1  pure
cells      1  pure
policy     1  pure
pool       1  order
mem_linux  1  os
arena      2  arena
cache      3  order
group      3  order  cache.h
hooks      3  order  cache.h
seq        3  order  cache.h
shrink     3  order  cache.h
place      3  order  cache.h
pages      3  order  cache.h
range      3  order  cache.h
reclaim    3  order  cache.h
compact    3  order  cache.h
outside    3  order  cache.h
budget     3  order  cache.h
copy       3  order  cache.h
window     3  order  cache.h
release    3  order  cache.h
evict      3  order  cache.h
check      3  order  cache.h
reaper     4  order
stats      4  plain
exposition 4  plain
mask       4  plain
draw       4  plain
'

pure_headers='assert.h errno.h inttypes.h limits.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdlib.h string.h
bsd/inttypes.h bsd/stdlib.h bsd/string.h bsd/sys/cdefs.h bsd/sys/queue.h bsd/sys/tree.h
kvlazy/arena.h kvlazy/engine_cells.h kvlazy/kvlazy.h kvlazy/mask.h kvlazy/mem.h kvlazy/pool.h kvlazy/reaper.h kvlazy/status.h
kvlazy/version.h'
plain_headers='ctype.h stdio.h strings.h bsd/libutil.h'
order_headers='pthread.h'

# check FILE...: prints what is wrong; fails if anything is.
check()
{
    table=$table pure=$pure_headers plain=$plain_headers order=$order_headers awk '
    function broken(rule) {
        printf "%s:%d: %s\n", FILENAME, FNR, rule
        n_broken++
    }

    function words_of(name, set,    word, i) {
        for (i = split(ENVIRON[name], word); i > 0; i--)
            set[word[i]] = 1
    }

    # The line without comments and without what stands in quotes.
    function code_of(line,    code, i) {
        for (code = ""; line != ""; ) {
            if (in_comment) {
                i = index(line, "*/")
                if (!i)
                    break
                line = substr(line, i + 2)
                in_comment = 0
            } else if (match(line, /^"([^"\\]|\\.)*"/) || match(line, /^\047([^\047\\]|\\.)*\047/)) {
                line = substr(line, RLENGTH + 1)
                code = code "\"\""
            } else if (substr(line, 1, 2) == "/*") {
                line = substr(line, 3)
                code = code " "
                in_comment = 1
            } else if (substr(line, 1, 2) == "//") {
                break
            } else {
                code = code substr(line, 1, 1)
                line = substr(line, 2)
            }
        }
        return code
    }

    function ours(header,    stem) {
        stem = header
        sub(/\.h$/, "", stem)
        if (!(stem in floor))
            broken("\"" header "\" is on no floor")
        else if (stem != self && floor[stem] >= floor[self] && !((self, header) in sibling))
            broken("floor " floor[self] " (" self ") includes \"" header "\" of floor " floor[stem])
    }

    function systems(header) {
        if (kind[self] == "os" || header in pure)
            return
        if (kind[self] != "pure" && header in plain)
            return
        if (kind[self] == "order" && header in order)
            return
        broken(self " is " kind[self] " and includes <" header ">")
    }

    # Is one of these functions called? `before` is what stands in front of the name.
    function calls(code, before, names) {
        return (" " code) ~ (before "(" names ")[ \t]*[(]")
    }

    BEGIN {
        words_of("pure", pure)
        words_of("plain", plain)
        words_of("order", order)
        for (i = split(ENVIRON["table"], row, "\n"); i > 0; i--) {
            n = split(row[i], column, " ")
            if (n < 3)
                continue
            floor[column[1]] = column[2]
            kind[column[1]] = column[3]
            for (; n > 3; n--)
                sibling[column[1], column[n]] = 1
        }
    }

    FNR == 1 {
        in_comment = 0
        self = FILENAME
        sub(/.*\//, "", self)
        sub(/\.[ch]$/, "", self)
        if (!(self in floor)) {
            broken(self " is on no floor: give it one in tests/floors.sh and docs/design.md")
            floor[self] = 0
            kind[self] = "plain"
        }
    }

    {
        line = $0
        is_directive = !in_comment && line ~ /^[ \t]*#/
        code = code_of(line)
    }

    is_directive && line ~ /^[ \t]*#[ \t]*include/ {
        header = line
        sub(/^[^"<]*["<]/, "", header)
        sub(/[">].*/, "", header)
        if (line ~ /^[^"<]*"/)
            ours(header)
        else
            systems(header)
        next
    }

    is_directive && code ~ /#[ \t]*(el)?if.*(^|[^A-Z])TEST/ {
        broken("a preprocessor condition for tests: put a fake behind kvlazy/mem.h instead")
    }

    kind[self] != "arena" && calls(code, "(->|[.])", "page_bytes|reserve|unreserve|commit|decommit|resident|set_writable|huge_page_bytes|traits|why_refused") {
        broken("only arena calls the table of kvlazy/mem.h")
    }
    kind[self] != "order" && calls(code, "(->|[.])", "now_ms") {
        broken("only floor 3 reads the clock")
    }
    kind[self] != "os" && calls(code, "[^A-Za-z0-9_]", "time|clock|clock_gettime|gettimeofday|timespec_get") {
        broken("a clock of its own: the only one is now_ms of kvlazy/mem.h")
    }
    self != "params" && calls(code, "[^A-Za-z0-9_]", "getenv|secure_getenv") {
        broken("only params reads the environment")
    }
    calls(code, "[^A-Za-z0-9_]", "v?f?printf|v?dprintf|f?puts|f?putc|putchar|perror|errx?|warnx?") {
        broken("the library prints nothing")
    }
    calls(code, "[^A-Za-z0-9_]", "abort|_?exit|_Exit|quick_exit|raise") {
        broken("the library never ends the process")
    }

    END {
        exit n_broken > 0
    }' "$@"
}

# Each line breaks one rule: file, its text, a part of the answer. "ok" as the answer: no rule is broken.
self_test()
{
    dir=$(mktemp -d) || exit 1
    trap 'rm -rf "$dir"' EXIT
    n_wrong=0
    while IFS='|' read -r file text answer; do
        printf '/* made up */\n%s\n' "$text" >"$dir/$file"
        told=$(check "$dir/$file")
        failed=$?
        rm "$dir/$file"
        case $answer:$failed:$told in
        ok:0:) ;;
        ok:*) echo "$file: '$text' is fine but: $told" && n_wrong=$((n_wrong + 1)) ;;
        *:1:*"/$file:"[12]": "*"$answer"*) ;;
        *) echo "$file: '$text' should be told '$answer', not: '$told'" && n_wrong=$((n_wrong + 1)) ;;
        esac
    done <<'END'
nobody.c|int x;|on no floor
log.c|#include "nobody.h"|on no floor
log.c|#include "arena.h"|of floor 2
log.c|#include "params.h"|of floor 0
cells.c|#include "geometry.h"|of floor 1
cells.c|#include <stdio.h>|<stdio.h>
policy.c|#include <time.h>|<time.h>
policy.h|# include <unistd.h>|<unistd.h>
policy.c|    now = clock_gettime(id, &ts);|a clock of its own
arena.c|#include <sys/mman.h>|<sys/mman.h>
arena.c|#include <pthread.h>|<pthread.h>
arena.c|#include "cache.h"|of floor 3
arena.c|    now = mem->now_ms(mem->ctx);|reads the clock
cache.c|    n = cache->mem.decommit(cache->mem.ctx, range, 1);|only arena
cache.c|    x = mem->traits(mem->ctx);|only arena
hooks.c|#include "shrink.h"|of floor 3
hooks.c|#include "stats.h"|of floor 4
seq.c|    if (bad) abort();|never ends
seq.c|    exit (1);|never ends
seq.c|    value = getenv("HOME");|the environment
shrink.c|    printf("%d", n);|prints nothing
shrink.c|    fprintf(stderr, "x");|prints nothing
check.c|#ifdef KVL_TEST|for tests
check.c|#if defined(TESTING)|for tests
cache.c|#include "cache.h"|ok
hooks.c|#include "cache.h" /* printf() */|ok
hooks.c|    now = cache->mem.now_ms(cache->mem.ctx);|ok
cache.c|#include <pthread.h>|ok
cells.c|#include <bsd/stdlib.h>|ok
log.c|    snprintf(text, n, "exit(1)"); // abort()|ok
arena.c|    if (mem->commit(mem->ctx, range, 1) == 0) return; /* exit(1) */|ok
mem_linux.c|#include <sys/mman.h>|ok
seq.c|#if LATEST|ok
END
    [ "$n_wrong" = 0 ] && echo "every rule is held"
}

case ${1-} in
--self-test) self_test ;;
'') echo "usage: floors.sh SRC_DIR | --self-test" >&2 && exit 2 ;;
*) check "$1"/*.[ch] && echo "the floors hold" ;;
esac
