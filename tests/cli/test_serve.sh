#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack serve, read and stat: their refusals and warnings, and the files after a failure.
source "${0%/*}/kit.sh"

engine=
trap 'kill $engine 2>/dev/null || :; rm -rf "$scratch"' EXIT
head -c 20000 /dev/urandom | base64 >a.txt
cat a.txt a.txt a.txt >b.txt # a source of three times as many tokens
for name in a b; do "$ringpack" convert -q --split-bytes 500 -o $name $name.txt; done
printf 'run: cli\nrun_dir: run\nsources: [a]\nseq_len: 64\nbatch_size: 1\nio: mapped\n' >c.yaml

# A descriptor that is not open would be written to, or watched, without a word.
for option in ready-fd lifeline; do
    for fd in x -1 77 99999999999; do
        refuses "--$option: expected the number of an open file descriptor|\`$fd\`" \
            timeout 600 "$ringpack" serve -c c.yaml --$option=$fd
    done
done
# Nor can the end of a file be waited for that is always at its end.
refuses '--lifeline 0: the end of this file cannot be waited for|one end of a pipe' \
    timeout 600 "$ringpack" serve -c c.yaml --lifeline 0 </dev/null
refuses '/proc/none: cannot create the directory' \
    timeout 600 "$ringpack" serve -c c.yaml --run-dir /proc/none
# A directory that takes no files is named, without advice to remove a file.
for place in /proc/1 /sys/kernel; do
    refuses "run directory $place: cannot create cli.lock: |--run-dir" \
        timeout 600 "$ringpack" serve -c c.yaml --run-dir $place
    ! grep -qE 'come and go|remove it' said || fail "$place: $(cat said)"
done
# Too many rings are refused before the first one is made.
refuses 'open files|for 1000000 ranks (dp_world_size 1000000)|found 1024|ranks: 0-7|ulimit -n' \
    bash -c 'ulimit -n 1024; exec timeout 600 "$@"' - "$ringpack" serve -c c.yaml \
    --dp-world-size 1000000
: >empty
refuses 'empty: expected a state token, found an empty file' \
    timeout 600 "$ringpack" serve -c c.yaml --state empty

# serve OPTION...: in the background, until it says that trainers can attach
serve() {
    : >serve.log # else the words of the engine before are found in it
    "$ringpack" serve -c c.yaml "$@" >serve.log 2>&1 &
    engine=$!
    wait_for grep -q 'serving run' serve.log
}
stop() {
    kill "$engine"
    wait "$engine" || fail "serve ended with status $?: $(cat serve.log)"
}

# Batches of a source that ends early come without it from there on: said by name, and only then.
serve
! grep -q weights serve.log || fail "one source has no rival: $(cat serve.log)"
[ "$("$ringpack" stat cli --run-dir run | "$python" -c 'import json, sys
stat = json.load(sys.stdin)
print(stat["io"], stat["reads"])')" = 'mapped 0' ] || fail "stat does not say that files are mapped"

# The chosen number of packers is logged with its reason; a given one holds.
packers() { "$ringpack" stat cli --run-dir run | "$python" -c 'import json, sys
print(json.load(sys.stdin)["packers"])'; }
grep -qE "packers: $(packers), chosen for [0-9]+ CPUs? shared with 1 trainer$" serve.log ||
    fail "no line tells why there are $(packers) packers: $(cat serve.log)"
stop
serve --packers=5
equals 5 "$(packers)"
! grep -q 'packers:' serve.log || fail "a given number was chosen: $(cat serve.log)"
stop
cpu=$("$python" -c 'import os; print(min(os.sched_getaffinity(0)))')
serve --profile=hf --sections=labels --cpus="$cpu" --consumers-per-rank=2
grep -q 'packers: 1, chosen for 1 CPU of the engine only, and 2 trainers$' serve.log ||
    fail "no line tells of the engine's own CPU: $(cat serve.log)"
grep -q 'warning: sections: profile hf adds position_ids,cu_seqlens to the list' serve.log ||
    fail "no warning that sections adds to a profile: $(cat serve.log)"
stop
serve

# A library of another version has a request of another size, and is refused with the reason.
"$python" - <<'PYTHON'
import socket, struct
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.connect("run/cli.sock")
peer.send(struct.pack("<QI", 0x314B4C41544B5052, 1) + bytes(100))
reply = peer.recv(65536)
assert b"shared-memory version: the engine has" in reply and b"the trainer 1" in reply, reply
PYTHON

# An empty file is no state token, and to the library it would be none at all. A file without a
# state token is refused by name, before an engine is looked for or started.
status 2 'empty: expected a state token, found an empty file' \
    "$ringpack" read cli --run-dir run --state empty
# So is a file that no state could be saved to, before the first batch is taken.
mkdir folder
status 2 '--save-state|no/such/dir|check the path' \
    "$ringpack" read cli --run-dir run --batches 1 --save-state no/such/dir/token
status 2 '--save-state folder: expected a file|give the path of a file' \
    "$ringpack" read cli --run-dir run --batches 1 --save-state folder
status 2 '--save-state|File name too long|give a shorter path' \
    "$ringpack" read cli --run-dir run --batches 1 --save-state "$(printf 'x%.0s' $(seq 300))"
[ "$("$ringpack" stat cli --run-dir run | "$python" -c 'import json, sys
print(json.load(sys.stdin)["next_row"])')" = 0 ] || fail "a batch was taken"
seq 100 >words
for command in 'read cli --run-dir run' 'serve -c c.yaml'; do
    status 2 'words: state token: these bytes are not a state token' \
        timeout 600 "$ringpack" $command --state words
done

# A row that could not be noted is not taken: the next trainer gets it.
"$ringpack" read cli --run-dir run --batches 2 >/dev/null
status 2 '/dev/full: No space left|make room' \
    "$ringpack" read cli --run-dir run --batches 1 --rows-log /dev/full
"$ringpack" read cli --run-dir run --batches 1 --rows-log rows >/dev/null
equals 2 "$(cut -d ' ' -f 1 rows)"
stop

serve --sources a,b
grep -q 'warning: weights: source `a` is used up after about' serve.log ||
    fail "a source that ends early: $(cat serve.log)"
stop
serve --sources a,b --num-epochs endless --dp-world-size 2 --io auto
! grep -q weights serve.log || fail "endless sources do not end: $(cat serve.log)"

# The sizes of a small corpus are not 0 MB, where its reason speaks of them.
"$ringpack" stat cli --run-dir run >said
! grep -qE "holds 0 MB|corpus' 0 MB" said || fail "$(grep io_reason said)"

# Without the other rank no batch comes; the printed command shows why, wherever the socket is.
"$ringpack" read cli --run-dir run --batches 1000000 >read.log 2>&1 &
trainer=$!
"$ringpack" read cli --run-dir run --rank 1 --batches 1 >/dev/null
wait_for grep -q 'no batch for' read.log
eval "$(sed -n 's/^.*`ringpack \(stat [^`]*\)`.*$/"$ringpack" \1/p' read.log)" >said ||
    fail "what read says to type: $(cat read.log)"
grep -q '"holds"' said || fail "stat: $(cat said)"
kill "$trainer"
wait "$trainer" || fail "read, interrupted, ended with status $?: $(cat read.log)"
stop

# A wait for an engine is reported, and ends at a signal: else it would last an hour.
for signal in INT TERM; do
    "${as_in_a_terminal[@]}" "$ringpack" read nobody --run-dir run --timeout 3600 \
        >read.log 2>&1 &
    trainer=$!
    wait_for grep -q 'not attached to run `nobody` for 5 s.*ringpack ps' read.log
    kill -$signal "$trainer"
    status=0
    wait "$trainer" || status=$?
    equals "$((128 + $(kill -l $signal)))" "$status"
done

# An engine that cannot save at its end does not end well, and its journal has its last save.
serve --checkpoint-dir ckpt --checkpoint-steps 2
"$ringpack" read cli --run-dir run --batches 2 >/dev/null
wait_for grep -q 'saved ckpt/' serve.log
"$ringpack" read cli --run-dir run --batches 1 >/dev/null
rm ckpt/.lock
: >ckpt/.lock
kill "$engine"
! wait "$engine" || fail "an engine without its last checkpoint ended well: $(cat serve.log)"
grep -q 'checkpoint not saved.*another ringpack writes here now' serve.log ||
    fail "a lock that was replaced: $(cat serve.log)"
"$ringpack" journal ckpt >said || :
words='stopped (signal) at row 3; not saved: .*another ringpack writes here now'
grep -q "$words; newest checkpoint checkpoint-[0-9]*[^ ]*, row 2\$" said ||
    fail "a stop whose save failed: $(cat said)"
echo "serve, read and stat: as expected"
