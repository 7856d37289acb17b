#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ringpack doctor: its report on a healthy machine, and on one that lacks a thing at a time.
set -u
: "${RINGPACK:?path of the program}"
PYTHON=${PYTHON:-python3}
work=$(mktemp -d /tmp/ringpack-test-doctor-XXXXXX)
trap 'rm -rf "$work"' EXIT
failures=0

# expect WHAT STATUS PATTERN COMMAND...: the exit status, and a line of the output that matches
expect() {
    local what=$1 status=$2 pattern=$3
    shift 3
    "$@" >"$work/out" 2>&1
    local found=$?
    if [ "$found" != "$status" ] || ! grep -Eq -- "$pattern" "$work/out"; then
        echo "FAILED: $what: expected exit $status and /$pattern/, found exit $found and:"
        sed 's/^/    /' "$work/out"
        failures=$((failures + 1))
    fi
}

doctor() { "$RINGPACK" doctor --run-dir "$work/run" "$@"; }
with_few_files() { (ulimit -n 32 && doctor); }
with_little_locked_memory() {
    local drop=()
    [ "$(id -u)" = 0 ] && drop=(setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock)
    (ulimit -l 64 && "${drop[@]}" "$RINGPACK" doctor --run-dir "$work/run")
}
# A filter of system calls: this one (its number is the same everywhere) answers with this error.
without_call() {
    "$PYTHON" - "$@" "$RINGPACK" doctor --run-dir "$work/run" <<'PROGRAM'
import ctypes, errno, os, struct, sys
call, answer = int(sys.argv[1]), 0x00050000 | getattr(errno, sys.argv[2])
code = [(0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, answer), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
filter = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, filter, 0, 0):
    sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[3], sys.argv[3:])
PROGRAM
}
without_io_uring() { without_call 425 EPERM; } # its setup, as containers deny it
without_threads() { without_call 435 EAGAIN; } # clone3

expect "help" 0 "Check this machine" "$RINGPACK" help doctor
expect "a healthy machine" 0 "^ready: " doctor
for name in kernel "page size" io_uring "locked memory" "huge pages" "shared memory" memory \
    /dev/shm "open files" "run directory" processors allocator checkpoints corpus vocabulary \
    verification; do
    expect "a line for $name" 0 "^(ok|warn) +$name " doctor
done
expect "nothing left of the run directory" 2 "No such file" ls "$work/run"

doctor --json >"$work/report"
expect "JSON" 0 "^18 True$" "$PYTHON" -c '
import json, sys
report = json.load(open(sys.argv[1]))
print(len(report["checks"]), report["ready"])
for check in report["checks"]:
    assert check["state"] in ("ok", "warn", "FAIL") and check["found"]
' "$work/report"

expect "more memory than there is" 1 "^FAIL +memory .* 100.0 TiB wanted" \
    doctor --prefetch-bytes 100tb
expect "its JSON" 1 '"ready": false' doctor --prefetch-bytes 100tb --json
expect "few descriptors" 1 "^FAIL +open files +32; " with_few_files
touch "$work/file"
expect "a run directory that cannot be" 1 "^FAIL +run directory .*$work/file" \
    "$RINGPACK" doctor --run-dir "$work/file/run"
expect "little locked memory" 0 "^warn +locked memory +64.0 KiB; 64.0 MiB are wanted" \
    with_little_locked_memory
expect "the way out" 0 "next: raise it: .ulimit -l unlimited" with_little_locked_memory
expect "io_uring denied" 0 "^warn +io_uring +io_uring cannot be used: .*EPERM.* pread" \
    without_io_uring
expect "a limit on processes that is used up" 1 \
    "^FAIL +threads .*[0-9]+ expected, 0 could be started" without_threads
expect "an unknown option" 2 "unrecognized option" doctor --bogus
expect "a size that is none" 2 "prefetch_bytes: .*many" doctor --prefetch-bytes many
head -c 65536 /dev/zero >"$work/tokens.bin"
printf '%s\n' 'seq_len: 1048576' 'batch_size: 64' 'dp_world_size: 2' \
    'sources: [{path: tokens.bin, format: raw, dtype: u16, eos: 1}]' \
    >"$work/run.yaml"
expect "the rings of a config: 64 MiB, and 8 slots of 64 rows of 4 MiB for each of 2 ranks" 0 \
    "^ok +memory .*, 4\.[0-9]+ GiB wanted by an engine$" doctor -c "$work/run.yaml"
cp "$work/tokens.bin" "$work/wide.bin"
sed 's/tokens.bin/wide.bin/; s/1048576/65536/' "$work/run.yaml" >"$work/wide.yaml"
expect "rows of 65,536 tokens" 0 "^ok +memory .*, [23]..\.[0-9]+ MiB wanted by an engine$" \
    doctor -c "$work/wide.yaml"
{ cat "$work/wide.yaml"; echo 'stages: [{until: row 128}, {seq_len: 262144}]'; } >"$work/grows.yaml"
expect "a later stage of rows four times as long" 0 \
    "^ok +memory .*, 1\.[01] GiB wanted by an engine$" doctor -c "$work/grows.yaml"
"$PYTHON" -c 'import numpy, sys; numpy.save(sys.argv[1], numpy.zeros((32768, 8), "f4"))' \
    "$work/wide.npy"
(cd "$work" && "$RINGPACK" column -q -c wide.yaml --column wide=wide.npy) ||
    failures=$((failures + 1))
expect "with a side column of 32 bytes for each token" 0 \
    "^ok +memory .*, 2\.[0-9]+ GiB wanted by an engine$" doctor -c "$work/wide.yaml" --columns wide
expect "what nothing verifies" 0 \
    "^warn +verification +nothing verifies 100.0 % of the tokens, 100.0 % of the bytes" \
    doctor -c "$work/run.yaml"
expect "in which source that is" 0 "source .tokens.: 32768 tokens .64.0 KiB. in 1 of 1 shards" \
    doctor -c "$work/run.yaml"
"$RINGPACK" index -q --format raw --dtype u16 --eos 1 "$work/tokens.bin"
expect "an indexed corpus" 0 "^ok +verification +every block that is read is compared" \
    doctor -c "$work/run.yaml"
expect "the sources of options" 1 "^FAIL +corpus .*nope" \
    doctor --sources nope --seq-len 256 --batch-size 2
expect "a key that the sources lack" 2 "seq_len: required" doctor --sources nope --batch-size 2
# A place where the first save would fail, and ids that would end the run when they come.
for place in /proc/none /sys/kernel/none/deeper "$work/file" "$work/file/below"; do
    expect "checkpoints in $place" 1 "^FAIL +checkpoints +checkpoint_dir $place cannot be written" \
        doctor -c "$work/run.yaml" --checkpoint-dir "$place"
done
expect "copies that cannot be" 1 "^FAIL +checkpoints +checkpoint_mirror_dir /proc/none" \
    doctor -c "$work/run.yaml" --checkpoint-dir "$work/kept" --checkpoint-mirror-dir /proc/none
expect "checkpoints in a directory that will be made" 0 "^ok +checkpoints .*$work/kept/here" \
    doctor -c "$work/run.yaml" --checkpoint-dir "$work/kept/here"
expect "a start that wants a checkpoint" 1 "^FAIL +checkpoints +resume: required, .*kept has no" \
    doctor -c "$work/run.yaml" --checkpoint-dir "$work/kept" --resume required
mkdir "$work/bad" && echo damaged >"$work/bad/checkpoint-000000000001.rpc"
expect "checkpoints of which none verifies" 1 "^FAIL +checkpoints .*none of its.* verifies" \
    doctor -c "$work/run.yaml" --checkpoint-dir "$work/bad"
expect "the same, set aside" 0 "^ok +checkpoints" \
    doctor -c "$work/run.yaml" --checkpoint-dir "$work/bad" --resume fresh
expect "nothing left of it" 2 "No such file" ls "$work/kept"
expect "nothing left beside it" 0 "^0$" bash -c 'ls -a "$1" | grep -c doctor || :' _ "$work"
printf '\x01\x00\x2c\x01\x01\x00' >"$work/ids.bin" # 1 300 1
"$RINGPACK" index -q --format raw --dtype u16 --eos 1 "$work/ids.bin"
ids="{path: $work/ids.bin, format: raw, dtype: u16, eos: 1}"
printf '%s\n' 'seq_len: 8' 'batch_size: 1' "sources: [$ids]" >"$work/ids.yaml"
expect "an id above the vocabulary" 1 \
    "^FAIL +vocabulary +source .ids. has token id 300, and ids must be below 300$" \
    doctor -c "$work/ids.yaml" --vocab-size 300
expect "a vocabulary that has it" 0 "^ok +vocabulary .* 300, below 301$" \
    doctor -c "$work/ids.yaml" --vocab-size 301
(cd "$work" && "$RINGPACK" index -q -c ids.yaml --index ids.rpi) || failures=$((failures + 1))
expect "the same of a corpus index" 1 "^FAIL +vocabulary .* 300, and ids must be below 300$" \
    doctor -c "$work/ids.yaml" --index "$work/ids.rpi" --vocab-size 300
expect "a config that is not there" 2 "$work/none.yaml" doctor -c "$work/none.yaml"

[ "$failures" = 0 ] && echo "doctor: all as expected"
exit $((failures != 0))
