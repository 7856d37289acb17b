#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Inherited settings of a process: a small stack, a umask for owners, SIGCHLD that is ignored, a
# terminal that stops background writers, and orphans, as the first process of a container.
source "${0%/*}/kit.sh"

engine=
trap 'kill -9 $engine 2>/dev/null || :; rm -rf "$scratch"' EXIT
head -c 200000 /dev/urandom | base64 >a.txt
"$ringpack" convert -q --tokenizer bytes --split-bytes 500 -o a a.txt
mkdir -m 700 run
keys=(--run in --run-dir run --sources a --seq-len 128 --batch-size 2)
endless=("${keys[@]}" --num-epochs endless)
serving() { grep -q 'serving run' log; }

# --- a stack of 64 KiB, which cannot be raised
small() { bash -c 'ulimit -s 64; exec "$@"' small "$@"; }
rows=
for way in '--io auto' '--io pread' '--io mapped' '--packer-processes true' \
    '--shuffle block --packing best_fit'; do
    # shellcheck disable=SC2086
    small "$ringpack" serve "${keys[@]}" $way --checkpoint-dir "kept${way// /}" 2>log &
    engine=$!
    wait_for serving
    status 0 'next row' small "$ringpack" read in --run-dir run
    wait "$engine" || fail "$way with a small stack: $(cat log)"
    rows=${rows:-$(grep 'next row' said)}
    [[ $way == *block* ]] || equals "$rows" "$(grep 'next row' said)"
done
status 0 rows small "$ringpack" plan "${keys[@]}"
status 0 documents small "$ringpack" inspect a
status 0 '' small "$ringpack" convert -q --tokenizer bytes -o again a.txt

# --- a umask for owners: files that could not be opened again
(umask 0277 && exec "$ringpack" serve "${endless[@]}" --checkpoint-dir masked 2>log) &
engine=$!
wait_for serving
status 0 'next row' "$ringpack" read in --run-dir run --batches 5
kill "$engine"
wait "$engine" || :
equals 700 "$(stat -c %a masked)"
equals 600 "$(stat -c %a masked/.lock masked/checkpoint-* | sort -u)"

# --- SIGCHLD is ignored by the parent: how packers and commands end is known all the same
env --ignore-signal=CHLD "$ringpack" serve "${endless[@]}" --packer-processes true 2>log &
engine=$!
wait_for serving
kill -SEGV "$(pgrep -P "$engine" | head -1)"
! wait "$engine" || fail "a packer crashed, and the engine went on"
grep -q 'crashed: Segmentation fault' log || fail "how the packer ended is not known: $(cat log)"

# --- `stty tostop` and an engine in the background, which writes its log to the terminal
"$python" - "$ringpack" serve "${endless[@]}" --run tty <<'PYTHON' || fail 'stopped by its terminal'
import os, pty, sys, termios
life, lifeline = os.pipe()
os.set_inheritable(life, True)
pid, terminal = pty.fork()
if pid == 0:
    modes = termios.tcgetattr(0)
    modes[3] |= termios.TOSTOP
    termios.tcsetattr(0, termios.TCSANOW, modes)
    os.close(lifeline)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.execv(sys.argv[1], [*sys.argv[1:], "--lifeline", str(life)])
    _, status = os.waitpid(child, os.WUNTRACED)
    os.write(1, b"it was stopped\n" if os.WIFSTOPPED(status) else b"it has ended\n")
    os._exit(0)
said = b""
while b"serving run" not in said:
    said += os.read(terminal, 4096)
    assert b"error" not in said, said
os.close(lifeline)
while b"it was stopped" not in said and b"it has ended" not in said:
    said += os.read(terminal, 4096)
assert b"it has ended" in said, said
PYTHON

# --- the first process of a container reaps orphans, and forwards signals
first=(unshare -rpf --mount-proc)
if "${first[@]}" true 2>/dev/null; then
    # shellcheck disable=SC2016
    "${first[@]}" sh -c 'sleep 0.2 & sh -c "sleep 0.1 &"; exec "$@"' sh \
        "$ringpack" serve "${endless[@]}" --checkpoint-dir first 2>log &
    engine=$!
    wait_for serving
    init=$(pgrep -P "$engine")
    alone() { [ "$(pgrep -c -P "$init")" = 1 ]; } # the engine: sleeps and zombies are gone
    wait_for alone
    status 0 'next row' "$ringpack" read in --run-dir run --batches 5
    kill "$init"
    wait "$engine" || fail "$?: $(cat log)"
    grep -q 'saved' log || fail "nothing was saved: $(cat log)"
fi
echo 'inherited: fine'
