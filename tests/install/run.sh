#!/bin/sh
# SPDX-License-Identifier: MIT
# Strangers use the installed tree. One step per call; WORK is a directory of the build that the steps share.
#
#   run.sh tree      WORK BUILD_DIR CONFIG      installs, then moves what was installed: it must not mind
#   run.sh cmake     WORK PROJECT VERSION       a project that says find_package(kvlazy)
#   run.sh subdir    WORK PROJECT VERSION       a project that says add_subdirectory
#   run.sh pkgconfig WORK SOURCE VERSION COMPILER [MODULE]   one call of the compiler, shared and static
set -eu
step=$1 work=$2 what=$3
here=$(cd "$(dirname "$0")" && pwd)
prefix=$work/prefix
unset DESTDIR || true

# run VERSION WORD...: the program must succeed and name the version.
run()
{
    want="kvlazy $1: success"
    shift
    told=$("$@") || { echo "$1 failed"; exit 1; }
    [ "$told" = "$want" ] || { echo "$1 says '$told', not '$want'"; exit 1; }
    echo "$1: $told"
}

# build_project PROJECT VERSION BUILD_DIR OPTION...
build_project()
{
    project=$1 version=$2 build=$3
    shift 3
    rm -rf "$build"
    cmake -S "$here/$project" -B "$build" "$@" && cmake --build "$build"
    run "$version" "$build/with_shared"
    run "$version" "$build/with_static"
}

case $step in
tree)
    rm -rf "$work"
    cmake --install "$what" --config "$4" --prefix "$work/elsewhere"
    mv "$work/elsewhere" "$prefix"
    ;;
cmake)
    build_project "$what" "$4" "$work/cmake-$what" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_PREFIX_PATH="$prefix"
    ;;
subdir)
    build_project "$what" "$4" "$work/subdir-$what" -DCMAKE_BUILD_TYPE=Debug -DKVLAZY_TREE="$here/../.."
    [ ! -e "$work/subdir-$what/kvlazy/tests" ] || { echo "a user of ours builds our tests"; exit 1; }
    ;;
pkgconfig)
    version=$4 compiler=$5 module=${6-kvlazy}
    pc=$(find "$prefix" -name "$module.pc")
    libdir=$(dirname "$(dirname "$pc")")
    export PKG_CONFIG_PATH="${pc%/*}"
    [ "$(pkg-config --modversion "$module")" = "$version" ]

    program=$work/pkgconfig-${what%/*}

    # Unquoted: pkg-config answers with words.
    # shellcheck disable=SC2046
    "$compiler" "$here/$what" -o "$program-shared" $(pkg-config --cflags --libs "$module")
    # shellcheck disable=SC2046
    "$compiler" "$here/$what" -o "$program-static" -static $(pkg-config --static --cflags --libs "$module")

    export LD_LIBRARY_PATH="$libdir"
    run "$version" "$program-shared"
    run "$version" "$program-static"
    ;;
*)
    echo "unknown step: $step" >&2
    exit 2
    ;;
esac
