#!/bin/sh
# SPDX-License-Identifier: MIT
# The floors of docs/design.md as data, held against the sources. A broken rule is named with file and line. What calls
# what is read off the objects, by tests/walls.sh.
#
#   floors.sh SRC_DIR       checks every .c and .h file in its folders
#   floors.sh --self-test   breaks every rule once and expects to be told
set -u

# A file includes headers of its own folder and of lower ones. What else it may do hangs on the kind of its folder, or
# on its own where it has a line here:
#   plain   ISO C and libbsd
#   pure    the same, but nothing that reads or writes text or files
#   table   pure, and alone in calling the table of kvlazy/mem.h
#   order   plain, and <pthread.h> and <sched.h>
#   clock   order, and now_ms of the table of kvlazy/mem.h
#   hash    plain, and the headers of xxhash
#   engine  plain, and the headers of ggml
#   os      any header of the system, and its clock
table='
base           0  plain
host           1  os
memory         2  pure
memory/arena   2  table
memory/pace    2  table
memory/table   2  table
tokens         3  pure
core           4  order
core/clock     4  clock
core/group     4  clock
state          5  plain
state/checksum 5  hash
store          5  os
ggml           5  engine
api            6  order
extra          7  order
'

pure_headers='assert.h errno.h inttypes.h limits.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdlib.h string.h
bsd/inttypes.h bsd/stdlib.h bsd/string.h bsd/sys/cdefs.h bsd/sys/queue.h bsd/sys/tree.h
kvlazy/arena.h kvlazy/engine_cells.h kvlazy/kvlazy.h kvlazy/mask.h kvlazy/mem.h kvlazy/pool.h kvlazy/reaper.h kvlazy/state.h kvlazy/store_ops.h
kvlazy/status.h kvlazy/store.h kvlazy/version.h'
plain_headers='ctype.h stdio.h strings.h bsd/libutil.h'
order_headers='pthread.h sched.h'

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

    function folder_of(path) {
        return path ~ /\// ? substr(path, 1, index(path, "/") - 1) : ""
    }

    function ours(header,    at) {
        at = folder_of(header)
        if (!(at in floor))
            broken("\"" header "\" is on no floor")
        else if (floor[at] > floor[folder])
            broken("floor " floor[folder] " (" folder ") includes \"" header "\" of floor " floor[at])
    }

    function systems(header) {
        if (kind_of_self == "os" || header in pure)
            return
        if (kind_of_self != "pure" && kind_of_self != "table" && header in plain)
            return
        if (kind_of_self == "hash" && header ~ /^xx(hash|h_x86dispatch)[.]h$/)
            return
        if (kind_of_self == "engine" && header ~ /^(kvlazy\/)?ggml[a-z-]*[.]h$/)
            return
        if ((kind_of_self == "order" || kind_of_self == "clock") && header in order)
            return
        broken(self " is " kind_of_self " and includes <" header ">")
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
        }
    }

    FNR == 1 {
        in_comment = 0
        self = FILENAME
        sub(/\.[ch]$/, "", self)
        n = split(self, part, "/")
        folder = n > 1 ? part[n - 1] : ""
        self = folder "/" part[n]
        if (!(folder in floor)) {
            broken(self " is on no floor: give its folder one in tests/floors.sh and docs/design.md")
            floor[folder] = 0
            kind[folder] = "plain"
        }
        kind_of_self = self in kind ? kind[self] : kind[folder]
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

    kind_of_self != "table" && calls(code, "(->|[.])", "page_bytes|reserve|unreserve|commit|decommit|resident|set_writable|huge_page_bytes|traits|why_refused|headroom|now_ns") {
        broken("only memory calls the table of kvlazy/mem.h")
    }
    kind_of_self != "clock" && calls(code, "(->|[.])", "now_ms") {
        broken("only core/clock and core/group read the clock")
    }
    kind_of_self != "os" && calls(code, "[^A-Za-z0-9_]", "time|clock|clock_gettime|gettimeofday|timespec_get") {
        broken("a clock of its own: the only one is now_ms of kvlazy/mem.h")
    }
    self != "base/params" && calls(code, "[^A-Za-z0-9_]", "getenv|secure_getenv") {
        broken("only base/params reads the environment")
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
        mkdir -p "$dir/${file%/*}"
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
attic/dust.c|int x;|on no floor
base/log.c|#include "attic/dust.h"|on no floor
base/log.c|#include "memory/arena.h"|of floor 2
tokens/cells.c|#include "core/cache.h"|of floor 4
core/seq.c|#include "api/door.h"|of floor 6
api/batch.c|#include "extra/reaper.h"|of floor 7
tokens/cells.c|#include <stdio.h>|<stdio.h>
base/policy.c|#include <time.h>|<time.h>
base/policy.h|# include <unistd.h>|<unistd.h>
base/policy.c|    now = clock_gettime(id, &ts);|a clock of its own
memory/arena.c|#include <sys/mman.h>|<sys/mman.h>
memory/arena.c|#include <pthread.h>|<pthread.h>
memory/arena.c|    now = mem->now_ms(mem->ctx);|read the clock
core/evict.c|    now = c->mem.now_ms(c->mem.ctx);|read the clock
core/evict.c|    n = cache->mem.decommit(cache->mem.ctx, range, 1);|only memory
memory/rows.c|    x = mem->traits(mem->ctx);|only memory
core/seq.c|    if (bad) abort();|never ends
core/seq.c|    exit (1);|never ends
core/seq.c|    value = getenv("HOME");|the environment
core/shrink.c|    printf("%d", n);|prints nothing
core/shrink.c|    fprintf(stderr, "x");|prints nothing
core/check.c|#ifdef KVL_TEST|for tests
core/check.c|#if defined(TESTING)|for tests
core/seq.c|#include "core/cache.h"|ok
core/seq.c|#include "tokens/cells.h"|ok
core/apply.c|#include "core/cache.h" /* printf() */|ok
core/clock.c|    now = cache->mem.now_ms(cache->mem.ctx);|ok
core/lock.c|#include <pthread.h>|ok
tokens/cells.c|#include <bsd/stdlib.h>|ok
base/log.c|    snprintf(text, n, "exit(1)"); // abort()|ok
memory/arena.c|    if (mem->commit(mem->ctx, range, 1) == 0) return; /* exit(1) */|ok
host/mem_linux.c|#include <sys/mman.h>|ok
core/seq.c|#if LATEST|ok
state/checksum.c|#include <xxhash.h>|ok
state/writer.c|#include <xxhash.h>|<xxhash.h>
ggml/buffer.c|#include <ggml-backend-impl.h>|ok
ggml/buffer.c|#include <kvlazy/ggml.h>|ok
ggml/buffer.c|#include <unistd.h>|<unistd.h>
core/cache.c|#include <ggml.h>|<ggml.h>
state/reader.c|#include <unistd.h>|<unistd.h>
host/file_linux.c|#include <unistd.h>|ok
END
    [ "$n_wrong" = 0 ] && echo "every rule is held"
}

case ${1-} in
--self-test) self_test ;;
'') echo "usage: floors.sh SRC_DIR | --self-test" >&2 && exit 2 ;;
*) check "$1"/*/*.[ch] && echo "the floors hold" ;;
esac
