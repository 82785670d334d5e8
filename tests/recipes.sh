#!/bin/sh
# SPDX-License-Identifier: MIT
# The pieces of C under the recipes of a page, for a test that runs them: after "#define RECIPE_A_RING_1" the first part
# under the heading "### A ring", up to a line that begins with "..."; then "_2", and so on.
#
#   recipes.sh PAGE > recipes.inc
awk '
    function begin() { printf "#ifdef RECIPE_%s_%d\n#undef RECIPE_%s_%d\n", name, ++part, name, part }
    /^## / { inside_recipes = $0 == "## Recipes"; next }
    !inside_recipes { next }
    /^### / { name = toupper(substr($0, 5)); gsub(/[^A-Z0-9]+/, "_", name); part = 0; next }
    /^```c$/ { inside = 1; begin(); next }
    inside && /^```$/ { inside = 0; print "#endif"; next }
    inside && /^\.\.\./ { print "#endif"; begin(); next }
    inside { print; n++ }
    END { if (!n) exit 1 }
' "$1"
