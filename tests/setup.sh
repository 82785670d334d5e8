# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Sourced by tests/run and bench/run: tries what they need, and installs the Debian packages of what is missing, and
# only those. It never takes the presence of a command for proof that the command can do its work.

# kvlazy_compiler LANGUAGE: prints the compiler that CMake will take for c or c++: $CC or $CXX, else the first of
# CMake's own list that is there.
kvlazy_compiler()
{
    local name chosen=${CC-}
    local -a names=(cc gcc clang)

    [ "$1" = c ] || { chosen=${CXX-} && names=(c++ g++ clang++); }
    [ -z "$chosen" ] || names=("$chosen")
    for name in "${names[@]}"; do
        command -v "${name%% *}" >/dev/null && echo "$name" && return
    done
    echo "there is no ${names[*]}" >&2
    return 1
}

# kvlazy_links LANGUAGE FLAG…: does an empty program compile and link? A compiler without the headers and start files
# of the C library, as apt brings it without its recommended packages, is there and cannot do this.
kvlazy_links()
{
    local language=$1 compiler dir status
    local -a words

    shift
    compiler=$(kvlazy_compiler "$language") || return
    read -ra words <<<"$compiler"
    dir=$(mktemp -d) || return
    printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' >"$dir/empty.$language"
    "${words[@]}" -x "$language" "$dir/empty.$language" -x none -o "$dir/empty" "$@" >&2
    status=$?
    rm -rf "$dir"
    return "$status"
}

# kvlazy_links_module MODULE OPTION…: the same with the flags that pkg-config gives for a library.
kvlazy_links_module()
{
    local flags
    local -a words

    flags=$(pkg-config "${@:2}" --cflags --libs "$1") || return
    read -ra words <<<"$flags"
    [ $# = 1 ] || words+=(-static)
    kvlazy_links c "${words[@]}"
}

# kvlazy_has WHAT: is it there, and does it work? WHAT is one of
#
#   cmd:NAME|NAME…    one such command is there
#   try:WORDS         this command, as a shell reads it, succeeds
#   c:FLAGS           an empty C program compiles and links with these flags, which may be none
#   c++:FLAGS         an empty C++ program does
#   pc:MODULE         pkg-config knows the library, and an empty C program links with it
#   static:MODULE     the same with the static library and everything that it needs
kvlazy_has()
{
    local name
    local -a words
    case $1 in
    cmd:*)
        IFS='|' read -ra words <<<"${1#cmd:}"
        for name in "${words[@]}"; do
            command -v "$name" >/dev/null && return
        done
        return 1
        ;;
    try:*) bash -c "${1#try:}" </dev/null >/dev/null ;;
    c:* | c++:*)
        read -ra words <<<"${1#*:}"
        kvlazy_links "${1%%:*}" "${words[@]}"
        ;;
    pc:*) kvlazy_links_module "${1#pc:}" ;;
    static:*) kvlazy_links_module "${1#static:}" --static ;;
    *) echo "kvlazy_has: $1 begins with none of cmd: try: c: c++: pc: static:" >&2 && return 1 ;;
    esac
}

# kvlazy_install PACKAGE…: as root or through sudo. Fails with a message that says what to do.
kvlazy_install()
{
    local -a as_root=()

    if ! command -v apt-get >/dev/null; then
        echo "missing, by their Debian names: $*. There is no apt-get here; please install them." >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "missing: $*. Neither root nor sudo: run this as root, or install them first:" >&2
            echo "    apt-get install $*" >&2
            return 1
        fi
        as_root=(sudo)
    fi

    # An update that fails is no reason to stop: the lists may be there already.
    echo "== install: $*"
    as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq)
    "${as_root[@]}" update || true
    if ! "${as_root[@]}" install -y --no-install-recommends "$@" >/dev/null; then
        echo "apt-get could not install $*. Is there a network, and are the sources of apt right?" >&2
        return 1
    fi
}

# kvlazy_need "WHAT=PACKAGE PACKAGE…"…: makes sure that each WHAT is there and works. Neither apt nor the network is
# touched when all are. A WHAT that needs another, as pc: needs a compiler, comes after it. Fails with a message that
# says what to do.
#
#   kvlazy_need "cmd:make|ninja=make" "c:=gcc libc6-dev" "cmd:pkg-config=pkg-config" "pc:libbsd=libbsd-dev"
#   kvlazy_need "pc:libmd=libmd-dev" "pc:libxxhash=libxxhash-dev" "pc:hiredis=libhiredis-dev" \
#       "cmd:redis-server=redis-server"
kvlazy_need()
{
    local need package
    local -a packages=()

    for need in "$@"; do
        kvlazy_has "${need%=*}" 2>/dev/null && continue
        for package in ${need##*=}; do
            case " ${packages[*]} " in
            *" $package "*) ;;
            *) packages+=("$package") ;;
            esac
        done
    done
    [ ${#packages[@]} = 0 ] && return

    kvlazy_install "${packages[@]}" || return
    hash -r
    for need in "$@"; do
        kvlazy_has "${need%=*}" && continue
        echo "${need##*=}: installed, but ${need%=*} is still not found or does not work." >&2
        return 1
    done
}
