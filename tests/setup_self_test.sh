#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tests/setup.sh on machines that are made up: a folder of commands is all that PATH has, the compilers and apt-get in
# it are scripts, and an installed package is a file in another folder. CTest calls it; nothing real is installed.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
bin=$dir/bin world=$dir/world packages=$dir/packages
n_wrong=0
unset CC CXX

# script FILE: what is read becomes a command.
script()
{
    mkdir -p "${1%/*}"
    { echo "#!$BASH" && cat; } >"$1"
    chmod +x "$1"
}

# compiler FILE PACKAGE: a compiler that works once the package is there. It finds a library whose package is, and
# asan likewise.
compiler()
{
    script "$1" <<END
[ -e $world/$2 ] || { echo "cannot find Scrt1.o: no $2" >&2; exit 1; }
for word in "\$@"; do
    case \$word in
    -l*) [ -e "$world/lib\${word#-l}-dev" ] || exit 1 ;;
    -fsanitize=*) [ -e $world/libasan ] || exit 1 ;;
    esac
done
END
}

# The packages: what each brings, and apt-get, which is there from the start on most machines.
compiler "$packages/gcc/gcc" libc6-dev
compiler "$packages/g++/g++" libc6-dev
compiler "$packages/clang/clang" clang
compiler "$packages/broken/gcc" never
script "$packages/make/make" </dev/null
script "$packages/ninja-build/ninja" </dev/null
script "$packages/redis-server/redis-server" </dev/null
script "$packages/gnuplot-nox/gnuplot" <<<'[ "$*" = "-e set terminal pngcairo" ]'
script "$packages/gnuplot-small/gnuplot" <<<'exit 1'
script "$packages/sudo/sudo" <<END
echo sudo >>$dir/log
"\$@"
END
script "$packages/pkg-config/pkg-config" <<END
for word in "\$@"; do
    case \$word in
    -*) ;;
    static-only) echo -lnever ;;
    *) [ -e "$world/\$word.pc" ] || [ -e "$world/\$word-dev" ] || exit 1; echo "-l\${word#lib}" ;;
    esac
done
END
script "$packages/apt/apt-get" <<END
while [ "\${1-}" != install ] && [ "\${1-}" != update ]; do shift; done
[ "\$1" = install ] || exit 0
shift
for word in "\$@"; do
    case \$word in
    -*) continue ;;
    none-such) exit 100 ;;
    esac
    echo "\$word" >>$dir/log
    : >"$world/\$word"
    [ ! -d "$packages/\$word" ] || cp "$packages/\$word/"* "$bin"
done
END

# machine PACKAGE…: a new one on which these are installed.
machine()
{
    local name
    rm -rf "$bin" "$world"
    mkdir "$bin" "$world"
    for name in bash cp env mktemp rm; do
        ln -s "$(command -v "$name")" "$bin"
    done
    echo "echo ${user_id-0}" | script "$bin/id"
    for name in "$@"; do
        : >"$world/$name"
        [ ! -d "$packages/$name" ] || cp "$packages/$name/"* "$bin"
    done
}

# expect STATUS ASKED TEXT NEED…: what kvlazy_need returns, the packages that it asks for and part of what it says.
expect()
{
    local told status asked
    : >"$dir/log"
    # shellcheck source=tests/setup.sh
    told=$(PATH=$bin && . ./setup.sh && kvlazy_need "${@:4}" 2>&1)
    status=$?
    asked=$(tr '\n' ' ' <"$dir/log")
    [ "$status:${asked% }" = "$1:$2" ] && [[ $told == *"$3"* ]] && return
    echo "${BASH_LINENO[0]}: '${*:4}' should return $1, ask for '$2' and say '$3'"
    echo "    but returned $status, asked for '${asked% }' and said '$told'"
    n_wrong=$((n_wrong + 1))
}

c="c:=gcc libc6-dev"

# A compiler that is there and cannot link is not enough; one that can is.
machine apt gcc; expect 0 "gcc libc6-dev" "== install: gcc libc6-dev" "$c"
machine apt gcc libc6-dev; expect 0 "" "" "$c"
machine apt; expect 0 "gcc libc6-dev" "" "$c"
machine apt gcc libc6-dev; expect 0 "g++" "" "$c" "c++:=g++"
machine apt g++; expect 0 "gcc libc6-dev g++" "" "$c" "c++:=g++"
machine apt g++; expect 0 "g++ libc6-dev" "" "c++:=g++ libc6-dev"
machine apt gcc libc6-dev; expect 0 "libasan" "" "$c" "c:-fsanitize=address,undefined=libasan"
machine apt gcc libc6-dev libasan; expect 0 "" "" "$c" "c:-fsanitize=address,undefined=libasan"

# What stays broken is named, with the compiler's own words.
machine apt broken; expect 1 "libc6-dev" "Scrt1.o: no never" "c:=libc6-dev"
machine apt broken; expect 1 "libc6-dev" "libc6-dev: installed, but c: is still not found or" "c:=libc6-dev"

# The compiler is the one that CMake takes.
machine apt gcc libc6-dev; CC=clang expect 0 "clang" "" "c:=clang"
machine apt clang; expect 0 "" "" "$c"
machine apt gcc libc6-dev; CC="gcc -fsanitize=address" expect 0 "libasan" "" "c:=libasan"
machine apt gcc g++ libc6-dev; CXX=nowhere expect 1 "g++" "there is no nowhere" "$c" "c++:=g++"

# A library that pkg-config knows and the linker does not find is not there.
machine apt gcc libc6-dev pkg-config; expect 0 "libbsd-dev" "" "pc:libbsd=libbsd-dev"
machine apt gcc libc6-dev pkg-config libbsd.pc; expect 0 "libbsd-dev" "" "pc:libbsd=libbsd-dev"
machine apt gcc libc6-dev pkg-config libbsd-dev; expect 0 "" "" "pc:libbsd=libbsd-dev" "static:libbsd=libbsd-dev"
machine apt gcc libc6-dev libbsd-dev; expect 0 "pkg-config libbsd-dev" "" \
    "cmd:pkg-config=pkg-config" "pc:libbsd=libbsd-dev"
machine apt gcc libc6-dev pkg-config; expect 1 "libbsd-dev" "static:static-only is still" \
    "static:static-only=libbsd-dev"
machine apt gcc libc6-dev pkg-config; expect 0 "libmd-dev libxxhash-dev libhiredis-dev redis-server" "" \
    "pc:libmd=libmd-dev" "pc:libxxhash=libxxhash-dev" "pc:libhiredis=libhiredis-dev" "cmd:redis-server=redis-server"

# Commands: one of several, and one that must work.
machine apt ninja-build; expect 0 "" "" "cmd:ninja|make=make"
machine apt; expect 0 "make" "" "cmd:ninja|make=make"
plot="try:gnuplot -e 'set terminal pngcairo'=gnuplot-nox"
machine apt; expect 0 "gnuplot-nox" "" "$plot"
machine apt gnuplot-small; expect 0 "gnuplot-nox" "" "$plot"
machine apt gnuplot-nox; expect 0 "" "" "$plot"

# Where nothing can be installed, the message says what is to be done.
machine gcc; expect 1 "" "missing, by their Debian names: gcc libc6-dev. There is no apt-get" "$c"
machine apt; expect 1 "" "apt-get could not install none-such" "cmd:none=none-such"
user_id=1000
machine apt gcc; expect 1 "" "    apt-get install gcc libc6-dev" "$c"
machine apt gcc sudo; expect 0 "sudo sudo gcc libc6-dev" "" "$c"
user_id=0

# A word that setup.sh does not know is never found.
machine apt; expect 1 "x" "begins with none of cmd:" "lib:x=x"

[ "$n_wrong" = 0 ] && echo "what is missing is found, and nothing else is asked for"
