#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack verify: finds no fault in a good engine, finds a broken one, and leaves no file behind.
source "${0%/*}/kit.sh"
broken=${RINGPACK_BROKEN:?path of the program that loses a fragment at resume}

# --- a corpus of two sources, documents of 1 to some thousand tokens
mkdir text
for i in $(seq 400); do
    head -c $((i * i * 7919 % 5000 + 1)) /dev/zero |
        tr '\0' "\\$(printf %o $((97 + i % 26)))" >"text/$i.txt"
done
"$ringpack" convert -q -o one text/1*.txt
"$ringpack" convert -q -o two text/[2-9]*.txt
cat >config.yaml <<'YAML'
sources:
  - {name: one, path: one, weight: 1}
  - {name: two, path: two, weight: 2.5}
seq_len: 512
batch_size: 4
dp_world_size: 2
seed: 11
profile: full
checkpoint_dir: mine
YAML

# --- every packing
status 0 'verify: identical|0 duplicates, 0 skips' "$ringpack" verify -c config.yaml --kills 15
for packing in concat best_fit; do
    status 0 'verify: identical|0 duplicates, 0 skips' \
        "$ringpack" verify -c config.yaml --packing $packing --kills 10
done
status 0 'verify: identical' "$ringpack" verify -c config.yaml --kills 6 --num-epochs endless \
    --shuffle block --block-documents 8 --window-blocks 4 --rows 500 --token-dtype i64
status 0 'verify: identical' "$ringpack" verify -c config.yaml --kills 6 --row-gap split \
    --stream-version 1 --plan-partitions 3

# --- a stream of version 2: stages, steps that are skipped, rows that are dealt, another seq_len
cat >stages.yaml <<'YAML'
stream_version: 2
sources:
  - {name: one, path: one, weight: 1, max_epochs: 9, select: length < 4000}
  - {name: two, path: two, weight: 2.5, repeat: {2: length < 900}}
seq_len: 512
batch_size: 4
global_batch_size: 8
seed: 11
eos_id: 300
deal: {window: 32, step: 8, tier: 4, order: middle, cost: 64}
stages:
  - until: 10 steps
  - {until: 40 steps, weights: {one: 3, two: 1}, ramp: 100, packing_buffer: 8}
  - seq_len: 1024
skip: {steps: [2-4], rows: [101]}
checkpoint_dir: mine
YAML
status 0 'verify: identical|a stage with another seq_len begins at row 320' \
    "$ringpack" verify -c stages.yaml --kills 15
nothing_left verify
[ ! -e mine ] || fail 'the checkpoints of verify went among those of the user'

# --- the numbers
"$ringpack" verify -c config.yaml --kills 5 --random 7 --json >said
"$python" - <<'PYTHON'
import json

said = json.load(open("said"))
assert said["identical"] and said["kills"] == 5 and said["random"] == 7, said
assert sum(said["kills_by_kind"].values()) == 5, said
assert said["digest_continuous"] == said["digest_resumed"], said
assert said["rows_compared"] >= said["rows"] > 300 and said["first_difference"] is None, said
PYTHON

# --- an engine that loses a fragment when it resumes is found, and the place is named
status 1 'verify: DIFFERENT|first difference: row|rank |the plan has there: source |document ' \
    "$ringpack" verify -c config.yaml --kills 25 --binary "$broken"
status 1 '"identical": false|"document": ' \
    "$ringpack" verify -c config.yaml --kills 25 --json --binary "$broken"
nothing_left 'verify of a broken engine'

# --- trouble is status 2, not a difference
status 2 'the engine ended by itself (status 1)' \
    "$ringpack" verify -c config.yaml --binary /bin/false
status 2 'missing' "$ringpack" verify --sources missing --seq-len 8 --batch-size 1
status 2 '--kills' "$ringpack" verify -c config.yaml --kills 0
status 2 'seq_len' "$ringpack" verify --sources one --batch-size 1
nothing_left 'a verify in trouble'

# --- Ctrl-C, and a kill -9 that the next one cleans up
"${as_in_a_terminal[@]}" "$ringpack" verify -c config.yaml --kills 100000 >said 2>&1 &
wait_for job_serves
kill -INT $!
found=0
wait $! || found=$?
[ "$found" = 2 ] || fail "interrupted: expected status 2, found $found"
grep -q 'interrupted' said || fail 'it does not say that it was interrupted'
nothing_left 'an interrupted verify'
"$ringpack" verify -c config.yaml --kills 100000 >said 2>&1 &
wait_for job_serves
kill -KILL $!
wait $! || true
status 0 'verify: identical' "$ringpack" verify -c config.yaml --kills 1
nothing_left 'a killed verify, after the next one,'
echo 'verify: fine'
