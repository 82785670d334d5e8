#!/bin/sh
# SPDX-License-Identifier: MIT
# Every piece of C in docs/embedding.md and the README stands in one of the files here, line after line; "..." leaves
# lines out.
set -eu
cd "$(dirname "$0")"
awk '
    function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }
    FNR == 1 { file++; name[file] = FILENAME; n[file] = 0 }
    FILENAME !~ /\.md$/ { if ((s = trim($0)) != "") line[file, n[file]++] = s; next }
    /^```c$/ { inside = 1; n_piece = 0; first = FNR; next }
    inside && /^```$/ { inside = 0; pieces++; if (n_piece) look(); next }
    inside && trim($0) == "..." { if (n_piece) look(); n_piece = 0; first = FNR; next }
    inside { if ((s = trim($0)) != "") piece[n_piece++] = s }
    function look(   f, i, j) {
        for (f = 1; f < file; f++)
            for (i = 0; i + n_piece <= n[f]; i++) {
                for (j = 0; j < n_piece && line[f, i + j] == piece[j]; j++) ;
                if (j == n_piece) return
            }
        printf "%s:%d: no such lines in tests/engine: %s ...\n", FILENAME, first, piece[0]
        bad = 1
    }
    END { if (pieces == 0) { print "no pieces found"; bad = 1 } exit bad }
' ./*.c ./*.h ../../docs/embedding.md ../../README.md
