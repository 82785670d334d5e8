#!/bin/sh
# SPDX-License-Identifier: MIT
# The words of the sources and pages: every sentence names what it is about, and a function returns. A banned word is
# told with file and line.
#
#   words.sh PATH...       checks every .c, .h, .in and .md file below these
#   words.sh --self-test   uses every banned word once and expects to be told
set -u
banned='who whoever somebody nobody anybody everybody'

# check FILE...: prints the lines in which a banned word stands, and the word; fails if there are any.
check()
{
    banned=$banned awk '
    function has_word(line, word) {
        return (" " line " ") ~ ("[^A-Za-z0-9_]" word "[^A-Za-z0-9_]")
    }

    function wrong(word, remedy) {
        printf "%s:%d: \"%s\": %s\n", FILENAME, FNR, word, remedy
        n_wrong++
    }

    BEGIN { n_word = split(ENVIRON["banned"], word, " ") }

    {
        for (i = 1; i <= n_word; i++)
            if (has_word(tolower($0), word[i]))
                wrong(word[i], "name the cache, the thread, the engine or what else it is")
    }
    FILENAME ~ /\.[ch]$/ && has_word($0, "Answers") { wrong("Answers", "a function returns") }

    END { exit n_wrong > 0 }' "$@"
}

# check_below PATH...: the files below some paths.
check_below()
{
    # No name of ours has a space.
    # shellcheck disable=SC2046
    check $(find "$@" -type f \( -name '*.[ch]' -o -name '*.in' -o -name '*.md' \) | sort)
}

# Each case: file, its text, what is told of it. "ok": nothing.
self_test()
{
    dir=$(mktemp -d) || exit 1
    trap 'rm -rf "$dir"' EXIT
    mkdir "$dir/docs"
    n_wrong=0
    while IFS='|' read -r file text answer; do
        printf 'One line before.\n%s\n' "$text" >"$dir/docs/$file"
        told=$(check_below "$dir")
        failed=$?
        rm "$dir/docs/$file"
        case $answer:$failed:$told in
        ok:0:) ;;
        ok:*) echo "'$text' is fine but: $told" && n_wrong=$((n_wrong + 1)) ;;
        *:1:"$dir/docs/$file:2: \"$answer\": "*) ;;
        *) echo "'$text' should be told '$answer', not: '$told'" && n_wrong=$((n_wrong + 1)) ;;
        esac
    done <<'END'
a.c|/* The thread that waits goes first. */|ok
a.c|/* Who waits goes first. */|who
a.c|/* a call of whoever waits */|whoever
a.h|#define X 1 /* somebody's */|somebody
a.md|Nobody waits.|nobody
a.in|of anybody|anybody
a.md|the test `who_touches_first`, and everybody|everybody
a.md|the test `who_touches_first`|ok
a.md|whose turn, whole sentences, whom|ok
a.c|/* Goes first. Answers whether it did. */|Answers
a.c|/* Goes first. Returns whether it did, and answers are kept. */|ok
a.md|Answers to questions|ok
a.txt|who|ok
END
    [ "$n_wrong" = 0 ] && echo "every rule is held"
}

case ${1-} in
--self-test) self_test ;;
'' | -*) echo "usage: words.sh PATH... | --self-test" >&2 && exit 2 ;;
*) check_below "$@" && echo "the words are plain" ;;
esac
