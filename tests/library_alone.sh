#!/bin/sh
# SPDX-License-Identifier: MIT
# The library is configured as the README says, where pkg-config knows nothing of cmocka: it builds and installs, and
# neither a test nor the benchmark is built with it. Only when tests are asked for is cmocka missed.
#
#   library_alone.sh WORK COMPILER      WORK is a directory of the build that this test owns
set -eu
work=$1
export CC="$2"
root=$(cd "$(dirname "$0")/.." && pwd)

# wrong WORD...
wrong()
{
    echo "$*"
    exit 1
}

rm -rf "$work"
mkdir -p "$work"
cat >"$work/pkg-config" <<END
#!/bin/sh
case " \$*" in
*cmocka*) exit 1 ;;
esac
exec $(command -v "${PKG_CONFIG-pkg-config}") "\$@"
END
chmod +x "$work/pkg-config"
export PKG_CONFIG="$work/pkg-config"

cmake -S "$root" -B "$work/lib"
cmake --build "$work/lib"
cmake --install "$work/lib" --prefix "$work/prefix"
for name in libkvlazy.so libkvlazy.a kvlazy.h kvlazy.pc; do
    [ -n "$(find "$work/prefix" -name "$name")" ] || wrong "$name was not installed"
done
for name in tests bench; do
    [ ! -e "$work/lib/$name" ] || wrong "$name: not asked for, but configured"
done

# The test can see a difference only if cmocka is really hidden.
if cmake -S "$root" -B "$work/tests" -DKVLAZY_BUILD_TESTS=ON >"$work/log" 2>&1; then
    wrong "tests were configured without cmocka"
fi
grep -q cmocka "$work/log" || wrong "with tests asked for, cmocka is not what was missed: $(cat "$work/log")"

# The benchmark does without it too.
cmake -S "$root" -B "$work/bench" -DKVLAZY_BUILD_BENCH=ON
