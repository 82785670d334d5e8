# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Sourced by tests/run and bench/run: installs the Debian packages that are missing, and only those.

# kvlazy_has WHAT: is it there? WHAT is cmd:name|name… (one such command is enough) or pc:module (of pkg-config).
kvlazy_has()
{
    local name
    local -a names
    case $1 in
    cmd:*)
        IFS='|' read -ra names <<<"${1#cmd:}"
        for name in "${names[@]}"; do
            command -v "$name" >/dev/null && return
        done
        return 1
        ;;
    pc:*) command -v pkg-config >/dev/null && pkg-config --exists "${1#pc:}" ;;
    *) echo "kvlazy_has: $1 is neither cmd: nor pc:" >&2 && return 1 ;;
    esac
}

# kvlazy_need WHAT=PACKAGE…: makes sure that each WHAT is there. Neither apt nor the network is touched when
# all are. Fails with a message that says what to do.
#
#   kvlazy_need "cmd:cmake=cmake" "cmd:make|ninja=make" "pc:cmocka=libcmocka-dev"
kvlazy_need()
{
    local need
    local -a packages=() as_root=()

    for need in "$@"; do
        kvlazy_has "${need%=*}" || packages+=("${need##*=}")
    done
    [ ${#packages[@]} = 0 ] && return

    if ! command -v apt-get >/dev/null; then
        echo "missing, by their Debian names: ${packages[*]}. There is no apt-get here; please install them." >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "missing: ${packages[*]}. Neither root nor sudo: run this as root, or install them first:" >&2
            echo "    apt-get install ${packages[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi

    # An update that fails is no reason to stop: the lists may be there already.
    echo "== install: ${packages[*]}"
    as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq)
    "${as_root[@]}" update || true
    if ! "${as_root[@]}" install -y --no-install-recommends "${packages[@]}" >/dev/null; then
        echo "apt-get could not install ${packages[*]}. Is there a network, and are the sources of apt right?" >&2
        return 1
    fi
    for need in "$@"; do
        if ! kvlazy_has "${need%=*}"; then
            echo "${need##*=} is installed, but ${need%=*} is still not found." >&2
            return 1
        fi
    done
}
