#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack weights: each mistake is refused by name, and nothing is changed.
source "${0%/*}/kit.sh"

engine=
trap 'kill $engine 2>/dev/null || :; rm -rf "$scratch"' EXIT
mkdir -m 700 run

for name in web books; do
    head -c 60000 /dev/urandom | base64 >$name.txt
    "$ringpack" convert -q --tokenizer bytes --split-bytes 500 -o $name $name.txt
done
cat >live.yaml <<YAML
stream_version: 2
run: live
run_dir: $scratch/run
sources:
- {name: web, path: web, weight: 3, max_epochs: 50}
- {name: books, path: books, weight: 1, max_epochs: 50}
seq_len: 128
batch_size: 1
global_batch_size: 4
checkpoint_dir: kept
mount_guard_dir: none
YAML
weights() { "$ringpack" weights --run-dir run "$@"; }

status 0 'in a running engine|--at-step=STEP' "$ringpack" weights -h
refuses 'weights: expected SOURCE=WEIGHT|ringpack help weights' "$ringpack" weights
refuses 'weights: expected --at-step STEP' weights live web=1
refuses 'weights: expected SOURCE=WEIGHT' weights live --at-step 9
refuses 'weights: expected SOURCE=WEIGHT, found `web`' weights live web --at-step 9
refuses 'weights: expected SOURCE=WEIGHT, found `=3`' weights live =3 --at-step 9
refuses 'web: expected a weight with at most 6 decimals, found `-1`' weights live web=-1 --at-step 9
refuses 'web: expected a weight with at most 6 decimals, found `nan`' weights live web=nan --at-step 9
refuses 'web: expected a weight with at most 6 decimals, found ``' weights live web= --at-step 9
refuses 'weights: web is given twice' weights live web=1 web=2 --at-step 9
refuses 'at-step: expected a step number, found `soon`' weights live web=1 --at-step soon
refuses 'RP_E_GONE' weights live web=1 --at-step 9

"$ringpack" serve -c live.yaml --accept-weights 2>log &
engine=$!
serves() { "$ringpack" stat -c live.yaml >stat 2>&1; }
wait_for serves
refuses 'the run has no source `wed`|did you mean `web`' weights live wed=1 --at-step 9
refuses 'all weights are 0' weights live web=0 books=0 --at-step 9
refuses 'no common scale below 2^32' weights live web=99999999 books=0.000001 --at-step 9
refuses 'step 0 is begun|name step' weights live web=1 --at-step 0
refuses 'has rows above 2^63' weights live web=1 --at-step 9223372036854775807
! grep -q '"event":"weights"' kept/run-journal.jsonl || fail "a refused command is in the journal"

status 0 'from step 90 on (row 360): web=2 books=5' weights live web=0.4 books=1 --at-step 90
refuses 'row 360 has a record with these weights' weights live web=2 books=5 --at-step 90
refuses 'row 360 has a record with other weights' weights live web=2 books=6 --at-step 90
status 0 'from step 80 on (row 320): books=1' "$ringpack" weights -c live.yaml books=1 --at-step 80
equals 2 "$(grep -c '"event":"weights"' kept/run-journal.jsonl)"
status 0 'weights from row 360 on: web=2 books=5|weights from row 320 on: books=1' \
    "$ringpack" journal kept
kill $engine
wait $engine || fail "the engine ended with $?: $(cat log)"

# a source that the journal names left the config
sed -i 's/name: books/name: novels/' live.yaml
rm kept/*.rpc
refuses 'the run journal has weights from row 360 on of a source that the config lacks|--fresh' \
    "$ringpack" serve -c live.yaml --accept-weights
echo "weights: all as expected"
