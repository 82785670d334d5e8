#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tests/bare with a README of its own and without a bare machine: debootstrap, git, apt-get and unshare are scripts
# here, and "in the root" means in its folder. CTest calls it; it needs neither root nor a network.
set -u
bare=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/bare
release=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME-}")
[ -n "$release" ] || { echo "skipped: /etc/os-release names no release here" && exit 77; }
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
bin=$dir/bin project=$dir/project
n_wrong=0

# script NAME: what is read becomes a command.
script()
{
    { echo "#!$BASH" && cat; } >"$bin/$1"
    chmod +x "$bin/$1"
}

# expect STATUS TEXT OPTION…: what tests/bare returns, from another folder, and part of what it says.
expect()
{
    told=$(cd / && PATH=$bin:$PATH "$project/tests/bare" "${@:3}" 2>&1 </dev/null)
    local status=$?
    [ "$status" = "$1" ] && [[ $told == *"$2"* ]] && return
    wrong "tests/bare ${*:3} should return $1 and say '$2', but returned $status and said '$told'"
}

wrong()
{
    echo "${BASH_LINENO[0]}: $*"
    n_wrong=$((n_wrong + 1))
}

mkdir -p "$bin" "$project/tests" "$dir/work"
cp "$bare" "$project/tests/bare"
cat >"$project/README.md" <<'END'
    echo indented is no fence
```c
int main(void);
```
```sh
echo one >made
cat made new && \
    echo joined
```
```sh
# a comment alone
ls made     # another machine: it is not there
test ! -e gone && test ! -e ignored
```
END
echo new >"$project/new"
echo ignored >"$project/ignored"

script id <<<'echo 0'
script git <<<'case "$*" in *ls-files*) printf "%s\0" README.md gone new tests/bare ;; esac'
script apt-config <<<'printf "%s\n" "Acquire::http::Proxy \"p\";" "APT::Architecture \"x\";"'
script apt-get <<END
printf '%s\n' "main $release-security here:/security" "main other here:/other" "contrib $release here:/contrib" \
    "main $release here:/main" "main $release here:/second"
END
script unshare <<'END'
while [ "${1#--}" != "$1" ] || [ "$1" = private ]; do
    case $1 in --mount-proc=*) root=${1#--mount-proc=} ;; esac
    shift
done
[ "$1" = sh ] || exec "$@"
cd "${root%/proc}/root/kvlazy" && exec bash -c "${@: -1}"
END
script debootstrap <<END
echo "\$*" >$dir/debootstrap
mkdir -p "\${@: -2:1}/etc/apt/apt.conf.d" && cp -r $dir/machine/. "\${@: -2:1}"
END
mkdir -p "$dir/machine/root"

# What it reads in the README, and its answers to wrong words.
expect 0 "--keep" --help
expect 0 $'echo one >made\ncat made new &&     echo joined\n\nls made ' --list
[[ $told != *indented* && $told != *int* && $told != *comment\ alone* ]] || wrong "--list prints too much: $told"
expect 0 "test ! -e gone" --list --only another
[[ $told != *joined* ]] || wrong "--only leaves another fence in: $told"
expect 2 'has no fence marked sh in which "nothing" stands' --only nothing
expect 2 "--wrong is no option; tests/bare --help" --wrong
expect 2 "word is no option" word
for option in --suite --mirror --dir --only; do
    expect 2 "$option needs a value" "$option"
done
expect 2 "there is no directory $dir/none" --dir "$dir/none"

# A whole run: a fence is a machine, a command that fails is named, the others run all the same.
expect 1 "on a bare $release" --dir "$dir/work"
summary=$(sed -En '/^== on a bare/,$ s/ +[0-9]+ s +/: /p' <<<"$told")
[ "$summary" = "passed fence 1: echo one >made
passed fence 1: cat made new &&     echo joined
FAILED fence 2: ls made     # another machine: it is not there
passed fence 2: test ! -e gone && test ! -e ignored" ] || wrong "the summary is: $summary"
[[ $told == *$'\none\nnew\njoined\n'* ]] || wrong "what the commands say is not shown: $told"
[[ $(<"$dir/debootstrap") == "--variant=minbase $release $dir/work/"*" here:/main" ]] ||
    wrong "debootstrap was called with $(<"$dir/debootstrap")"
[ -z "$(ls "$dir/work")" ] || wrong "left behind: $(ls "$dir/work")"
expect 0 "passed" --dir "$dir/work" --only joined

# Another release from elsewhere; what is to be kept.
expect 0 "kept: $dir/work/kvlazy-bare." --dir "$dir/work" --only joined --keep --suite next --mirror https://there
[[ $(<"$dir/debootstrap") == *"--include=ca-certificates next "*" https://there" ]] ||
    wrong "debootstrap was called with $(<"$dir/debootstrap")"
[ "$(cat "$dir"/work/*/base/etc/apt/apt.conf.d/*)" = 'Acquire::http::Proxy "p";' ] ||
    wrong "of apt, the way to the network is to be copied, and that alone"
ls "$dir"/work/*/fence-1/root/kvlazy/made >/dev/null || wrong "the fence's root was not kept"
rm -rf "$dir"/work/*

# What stops it before a command runs, with nothing left behind.
script debootstrap <<<'echo the mirror is away; exit 1'
expect 2 $'the mirror is away\ntests/bare: debootstrap failed' --dir "$dir/work"
[ -z "$(ls "$dir/work")" ] || wrong "left behind: $(ls "$dir/work")"
script apt-get </dev/null
expect 2 "apt has no lists of \"$release\"" --dir "$dir/work"
script git <<<'exit 128'
expect 2 "is no git checkout" --dir "$dir/work"
script id <<<'echo 1000'
expect 2 "needs root" --dir "$dir/work"

# A signal ends the command that runs, and cleans up, even if another comes meanwhile.
rm=$(command -v rm)
script rm <<<"kill -TERM \$PPID \$\$; exec $rm \"\$@\""
script id <<<'echo 0'
script git <<<'case "$*" in *ls-files*) printf "%s\0" README.md ;; esac'
script debootstrap <<<"echo \$\$ >$dir/pid; exec sleep 1000"
PATH=$bin:$PATH "$project/tests/bare" --dir "$dir/work" --suite next --mirror here:/main >/dev/null 2>&1 </dev/null &
until [ -s "$dir/pid" ]; do sleep 0.05; done
kill -TERM $! && wait $!
[ $? = 2 ] || wrong "a signal should end it with 2"
kill -0 "$(<"$dir/pid")" 2>/dev/null && wrong "debootstrap still runs" && kill "$(<"$dir/pid")"
[ -z "$(ls "$dir/work")" ] || wrong "left behind: $(ls "$dir/work")"

[ "$n_wrong" = 0 ] && echo "tests/bare runs what the README says, tells what failed and leaves nothing behind"
