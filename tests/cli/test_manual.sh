#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manual pages, which are made of the program's help, and completion in the real shells.
source "${0%/*}/kit.sh"
root=$(cd "${0%/*}/../.." && pwd)
export PATH=$(dirname "$ringpack"):$PATH

# ---- pages: each option of the help is in its page, and the pages are fine
export SOURCE_DATE_EPOCH=1700000000
"$root/tools/manual" "$ringpack" pages
verbs=$("$ringpack" help | sed -nE 's/^  ([a-z]+) +[^ ].*/\1/p')
[ "$(wc -w <<<"$verbs")" -gt 10 ] || fail "the verbs of the help were not found: $verbs"
text() { mandoc -T utf8 "$1" | sed 's/.\x08//g' | tr -s ' \n' ' '; }
for verb in $verbs; do
    text "pages/man1/ringpack-$verb.1" >page
    grep -q "ringpack-$verb - " page || fail "ringpack-$verb.1 does not say its name: $(cat page)"
    for option in $("$ringpack" help "$verb" | grep -oE '^ +(-[a-zA-Z], )?--[a-z-]+' |
        grep -oE -e '--[a-z-]+'); do
        grep -qF -e "$option" page || fail "$option of $verb is not in its page"
    done
    text pages/man1/ringpack.1 | grep -q "ringpack-$verb(1)" || fail "ringpack.1 lacks $verb"
done
text pages/man5/ringpack.yaml.5 >page
for key in $("$ringpack" config show | awk 'NR > 1 && /^[a-z]/ { print $1 }') mask_of dtype; do
    grep -qw "$key" page || fail "$key is not in ringpack.yaml(5)"
done
text pages/man3/ringpack.3 >page
for name in $(sed -nE 's/^RP_API[^(]*[ *](rp_[a-z_]+)\(.*/\1/p' "$root"/include/ringpack/*.h); do
    grep -qF "$name(" page || fail "$name() is not in ringpack(3)"
done
grep -q 'Returns the length in bytes' page || fail "ringpack(3) has no comments of the headers"
mandoc -T lint -W error pages/man?/* || fail "a page is not well formed"

# Narrow, without colours and without a known terminal, pages and help have the same words.
words() { env -u TERM -u COLUMNS NO_COLOR=1 "$@" | sed 's/.\x08//g' | tr -s ' \n' ' '; }
page=pages/man1/ringpack-serve.1
words mandoc -T ascii -O width=24 $page >narrow
for option in $("$ringpack" help serve | grep -oE -e '--[a-z-]+' | sort -u); do
    grep -qF -e "$option" narrow || fail "$option is not in a page of 24 columns"
done
! grep -q $'\x1b' narrow || fail "a page has escape sequences without a terminal"
equals "$("$ringpack" help serve | tr -s ' \n' ' ')" "$(COLUMNS=20 words "$ringpack" help serve)"
echo '.NOSUCH request' >pages/man1/broken.1 # control
! mandoc -T lint -W error pages/man1/broken.1 >/dev/null || fail "a broken page passes"
rm pages/man1/broken.1
"$root/tools/manual" "$ringpack" again
diff -r pages again || fail "the pages are not reproducible"

# ---- bash
cat >bash_asks <<'BASH'
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_ringpack 2>/dev/null # compopt has no effect outside of a completion
echo "${COMPREPLY[*]}"
BASH
completes() {
    equals "$1" "$(bash bash_asks "$root/tools/completion/ringpack.bash" "${@:2}")"
}
completes "serve" ringpack se
completes "convert column config calibrate checkpoint" ringpack help c
completes "--shuffle=" ringpack serve --shuf
completes "--side-column=" ringpack convert --si
completes "document" ringpack serve --shuffle = d
completes "none document block" ringpack serve --shuffle =
completes "true" ringpack serve --drop-last = t
completes "" ringpack serve --seq-len = 1
completes "" ringpack nonsense --x
script=$root/tools/completion/ringpack.bash
without=$(env -i "$(command -v bash)" bash_asks "$script" "$ringpack" se)
equals "serve" "$without"

# ---- fish
asks_fish() {
    HOME=$scratch fish -c "source $root/tools/completion/ringpack.fish; complete -C '$1'"
}
equals "serve	feed the trainers of this machine" "$(asks_fish "ringpack se")"
equals "--shuffle=" "$(asks_fish "ringpack serve --shuf")"
equals "--shuffle=block --shuffle=document --shuffle=none" \
    "$(asks_fish "ringpack serve --shuffle=" | tr '\n' ' ' | sed 's/ $//')"

# ---- zsh: only a terminal completes, so one is made
cat >asks_zsh <<'PYTHON'
import os, pty, select, sys, time

folder, typed, wanted = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    os.execvp("zsh", ["zsh", "-f", "-i"])

def until(text, seconds=60):
    seen, end = "", time.monotonic() + seconds
    while text not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace").replace("\a", "")
    return seen

start = f"PS1=; fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; echo re''ady\n"
os.write(terminal, start.encode())
until("ready\r\n")
os.write(terminal, typed.encode() + b"\t")
seen = until(wanted)
os.kill(child, 9)
sys.exit(0 if wanted in seen else f"zsh completed {typed!r} to {seen!r}")
PYTHON
asks_zsh() { TERM=dumb HOME=$scratch "$python" asks_zsh "$root/tools/completion" "$@"; }
asks_zsh "ringpack ser" "ringpack serve"
asks_zsh "ringpack serve --shuf" "--shuffle="
asks_zsh "ringpack serve --shuffle=doc" "--shuffle=document"
