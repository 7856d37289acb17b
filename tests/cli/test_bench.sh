#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack bench: its counts are consistent, an interrupt loses no result, mistakes are named.
source "${0%/*}/kit.sh"

holds() { # holds EXPRESSION: of the report in `report`
    "$python" -c "
import json, sys
r = json.load(open('report'))
sys.exit(not ($1))" || fail "$1: $(cat report)"
}

"$python" - <<'PYTHON'
import array
open("a.bin", "wb").write(array.array("H", ([9] * 99 + [0]) * 20000).tobytes())
PYTHON
cat >c.yaml <<'YAML'
sources:
- {path: a.bin, format: raw, dtype: u16, eos: 0}
seq_len: 512
batch_size: 2
dp_world_size: 2
checkpoint_dir: checkpoints
YAML

# both runs and all limits, two trainers
"$ringpack" bench -c c.yaml --seconds 0.4 --json >report
holds 'not r["interrupted"]'
holds 'r["corpus"] == {"tokens": 2000000, "documents": 20000, "bytes": 4000000}'
holds 'set(r["limits"]) == {"memcpy", "planning", "reading_hot", "reading_cold"}'
holds 'all(l["tokens_per_second"] > 0 for l in r["limits"].values())'
for run in hot cold; do
    holds "r['$run']['seconds'] >= 0.4 and r['$run']['batches'] > 0"
    # every batch holds two rows that are nearly full
    holds "0.9 * 1024 < r['$run']['tokens'] / r['$run']['batches'] <= 1024"
    holds "0 <= r['$run']['trainers_wait'] <= 1 and len(r['$run']['threads']) >= 4"
    holds "r['$run']['held_back_by'] and r['$run']['why']"
done
[ ! -e checkpoints ] || fail "the user's checkpoint_dir was written to"

# a table for people
"$ringpack" bench -c c.yaml --seconds 0.2 --hot >report.txt
for words in 'limits of this machine' planning 'reading, hot' 'hot is held back by:' 'threads of'
do
    grep -q "$words" report.txt || fail "\`$words\` is not in: $(cat report.txt)"
done
for words in '2,000,000 tokens in 20,000 documents' '2 rows of 512 tokens, 2 of 2 ranks here' \
    'trainers wait'
do
    grep -q "$words" report.txt || fail "\`$words\` is not in: $(cat report.txt)"
done
grep -q 'cold' report.txt && fail "cold was not asked for: $(cat report.txt)"

# the limits only
"$ringpack" bench -c c.yaml --seconds 0.2 --limits --hot --json >report
holds 'set(r["limits"]) == {"memcpy", "planning", "reading_hot"} and not r["hot"]'
"$ringpack" bench -c c.yaml --seconds 0.2 --limits >report.txt
grep -q 'reading, cold' report.txt || fail "no limit of the disk: $(cat report.txt)"
! grep -q 'delivered' report.txt || fail "a run was measured: $(cat report.txt)"

# one of each is said as one
"$ringpack" bench -c c.yaml --seconds 0.2 --hot --batch-size 1 --dp-world-size 1 >report.txt
for words in '1 row of 512 tokens, 1 of 1 rank here' 'the trainer waits'; do
    grep -q "$words" report.txt || fail "\`$words\` is not in: $(cat report.txt)"
done
grep -E ' 1 (rows|tokens|documents|ranks|cores)\b' report.txt && fail "a plural: $(cat report.txt)"

# Ctrl-C: the values so far are printed, no file is left
"${as_in_a_terminal[@]}" "$ringpack" bench -c c.yaml --seconds 600 --hot --json >report &
wait_for has_worked $! # on the first limit
kill -INT $!
wait $! || fail "an interrupt is not a failure: status $?"
holds 'r["interrupted"] and r["limits"]["memcpy"]["tokens_per_second"] > 0'
nothing_left 'an interrupted bench'

# the cost of saves: the parts add up, and no file is left in the place of checkpoints
"$ringpack" bench -c c.yaml --checkpoint --seconds 0.3 --step-ms 1 --checkpoint-dir deep/kept \
    --json >report
holds 'not r["interrupted"] and r["saves"] >= 3 and r["bytes"] > 12288'
holds 'set(r["parts_seconds"]) == {"copy", "write", "sync", "name", "read_back"}'
holds 'all(r["parts_seconds"][p] < r["seconds"] for p in ("copy", "write", "sync", "name"))'
holds '0 < r["seconds"] < r["busy_seconds"] and 0 < r["plain_write_seconds"]'
for calls in next_without_save next_during_save; do
    holds "r['$calls']['calls'] > 0"
    holds "r['$calls']['median_seconds'] <= r['$calls']['p99_seconds']"
    holds "r['$calls']['p99_seconds'] <= r['$calls']['longest_seconds']"
done
holds 'all(i["cost"] * i["seconds"] <= r["lost_seconds"] * 1.001 for i in r["intervals"])'
holds 'r["costs_a_thousandth"]["seconds"] >= 999 * r["lost_seconds"]'
holds 'r["costs_a_thousandth"]["seconds"] >= r["busy_seconds"] * 0.999'
[ ! -e deep ] || fail "checkpoint_dir was made"
"$ringpack" bench -c c.yaml --checkpoint --seconds 0.1 --step-ms 0 >report.txt
for words in 'a checkpoint' read_back 'plain write' 'lost by a save' 'a save every' 'most 0.1 %'
do
    grep -q "$words" report.txt || fail "\`$words\` is not in: $(cat report.txt)"
done
grep -v checkpoint_dir c.yaml >without.yaml
refuses 'has no checkpoint_dir' "$ringpack" bench -c without.yaml --checkpoint
refuses 'expected 0 … 60000, found `x`' "$ringpack" bench -c c.yaml --checkpoint --step-ms x
refuses '--step-ms needs --checkpoint' "$ringpack" bench -c c.yaml --step-ms 5
refuses '--hot, --cold and --limits exclude' "$ringpack" bench -c c.yaml --checkpoint --cold
"${as_in_a_terminal[@]}" "$ringpack" bench -c c.yaml --checkpoint --seconds 600 >report.txt &
wait_for compgen -G '.ringpack-bench-*/checkpoint-*2.rpc' >/dev/null
kill -INT $!
wait $! || fail "an interrupt is not a failure: status $?"
nothing_left 'interrupted saves'
compgen -G '.ringpack-bench-*' >/dev/null && fail "a directory is left: $(echo .ringpack-bench-*)"

# mistakes
refuses 'expected a number from' "$ringpack" bench -c c.yaml --seconds nan
refuses 'expected a number from' "$ringpack" bench -c c.yaml --seconds 0
refuses 'seq_len' "$ringpack" bench --sources a.bin --batch-size 2
echo "bench: ok"
