#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack plan warns of micro-batches without a label and of documents that fill steps, by counts
# that can be made by hand; and a wrong EOS is doubted wherever a corpus is opened.
source "${0%/*}/kit.sh"

# counts FIELD...: of the report in `report`
counts() {
    "$python" -c "import json, sys; r = json.load(open('report'))
print(*(r[n] for n in sys.argv[1:]))" "$@"
}

"$python" - <<'PYTHON'
import array
def words(*lengths, eos=0):
    return array.array("H", [t for n in lengths for t in [7] * (n - 1) + [eos]]).tobytes()

open("short.bin", "wb").write(words(*[1] * 8, *[4] * 8))  # 2 rows of single tokens, then 8
open("long.bin", "wb").write(words(8 * 64, *[8] * 64))         # 64 rows of one document, then 64
open("pool.bin", "wb").write(words(*[8 * 8] * 8))              # 8 rows of each of 8 documents
open("neox.bin", "wb").write(words(*[200] * 500, eos=50279) + words(1, 1))
open("books.bin", "wb").write(words(*[9000] * 20))             # more than 16 documents: not doubted
open("commas.bin", "wb").write(words(*[5] * 20000))
PYTHON
config() { printf 'run: w\nsources: [{path: %s.bin, format: raw, dtype: u16, eos: 0}]\n' "$1"; }
{
    config short
    printf 'seq_len: 4\nbatch_size: 2\nglobal_batch_size: 8\nshuffle: none\npacking: concat\n'
} >s.yaml
{ config long; printf 'seq_len: 8\nbatch_size: 8\nshuffle: none\n'; } >l.yaml
echo 'stream_version: 1' >>l.yaml
{ config pool; printf 'seq_len: 8\nbatch_size: 8\nshuffle: none\n'; } >p.yaml

# Rows 0 and 1 have eight documents of one token: one micro-batch of two rows has no label. The 10
# rows leave 6 of the 16 rows of two steps: three micro-batches.
"$ringpack" plan -c s.yaml --json >report
equals "2 1 3" "$(counts rows_without_label batches_without_label padding_batches)"
"$ringpack" plan -c s.yaml --json --drop-last true >report
equals "2 1 0" "$(counts rows_without_label batches_without_label padding_batches)"
"$ringpack" plan -c s.yaml --json --rows 4 >report # an endless stream has no reported end
equals "False 0" "$(counts complete padding_batches)"
words="2 rows and 1 micro-batches without a label|3 micro-batches of the last step have no label"
status 0 "$words|drop_last: true" "$ringpack" plan -c s.yaml

# The engine reports the same on the last step when it has given it; with drop_last there is no such
# step.
for drop_last in false true; do
    "$ringpack" serve -c s.yaml --run-dir run --drop-last $drop_last 2>log &
    engine=$!
    wait_for grep -q 'serving run' log
    "$ringpack" read w --run-dir run >rows
    wait $engine || fail "the engine failed: $(cat log)"
    found=$(grep -c 'the last step has 3 micro-batches without a label' log || true)
    equals $drop_last/$found "$drop_last/$([ $drop_last = true ] && echo 0 || echo 1)"
done

# The pool has seven rows of each document, and the FIFO its last one. With a spread of 1 the seven
# follow each other, and steps 3 and 7 alone have no document with more than half of their tokens.
"$ringpack" plan -c p.yaml --json --spread 1 >report
equals "8 6 0.625 8" "$(counts steps steps_of_one_document largest_document_share spread_advised)"
status 0 'in 6 of 8 steps one document has more than half|`spread: 8`' \
    "$ringpack" plan -c p.yaml --spread 1
"$ringpack" plan -c p.yaml --json --spread 8 >report
equals "0 8" "$(counts steps_of_one_document spread_advised)"
! "$ringpack" plan -c p.yaml | grep -q 'more than half' || fail "spread is advised again"

# Version 1: half of the 16 steps are one document; with a lane for each row of a step, none is.
"$ringpack" plan -c l.yaml --json >report
equals "16 8 0.5 8" "$(counts steps steps_of_one_document largest_document_share lanes_advised)"
status 0 'in 8 of 16 steps one document has more than half|`plan_partitions: 8`' \
    "$ringpack" plan -c l.yaml
"$ringpack" plan -c l.yaml --json --plan-partitions 8 >report
equals "0 8" "$(counts steps_of_one_document lanes_advised)"
! "$ringpack" plan -c l.yaml --plan-partitions 8 | grep -q 'more than half' ||
    fail "partitions are advised again"

# An EOS that never occurs, occurs twice, or is every fifth token; and one that is right.
declare -A doubt=([neox-3]='one document of 100002 tokens'
    [neox-0]='the longest document has 100001'
    [commas-0]='20 % of its tokens are the EOS')
raw=(--format raw --dtype u16)
for one in neox-3 neox-0 commas-0; do
    file=${one%-*}.bin eos=${one#*-}
    words="${doubt[$one]}|is $eos the right eos?"
    printf 'run: eos\nseq_len: 128\nbatch_size: 4\nsources:\n' >e.yaml
    printf -- '- {path: %s, format: raw, dtype: u16, eos: %s}\n' "$file" "$eos" >>e.yaml
    status 0 "$words" "$ringpack" inspect "${raw[@]}" --eos "$eos" "$file"
    status 0 "$words" "$ringpack" index "${raw[@]}" --eos "$eos" "$file"
    status 0 "$words" "$ringpack" plan -c e.yaml
    status 0 "$words" "$ringpack" doctor -c e.yaml
    "$ringpack" index -q -c e.yaml -o e.rpi >said
    status 0 "$words" "$ringpack" plan -c e.yaml --index e.rpi
    rm "$file.rpi" e.rpi
    "$ringpack" serve -c e.yaml --run-dir run 2>log &
    engine=$!
    wait_for grep -q 'serving run' log
    kill $engine
    wait $engine || true
    grep -qF "${doubt[$one]}" log || fail "the start does not doubt the EOS: $(cat log)"
done
for right in neox-50279 books-0; do
    printf 'seq_len: 128\nbatch_size: 4\nsources:\n' >e.yaml
    printf -- '- {path: %s.bin, format: raw, dtype: u16, eos: %s}\n' "${right%-*}" "${right#*-}" \
        >>e.yaml
    ! "$ringpack" plan -c e.yaml 2>&1 | grep 'right eos' || fail "$right is doubted"
done

# Weights as programs print them, and a folder whose name has brackets, which is no pattern.
mkdir 'g[1]'
cp short.bin 'g[1]/a.bin'
for weight in 1e-05=0.00001 2.5E+1=25 5e-1=0.5 7e0=7 .5=0.5 5.=5 1000000000.0=1000000000 1e2=100; do
    printf 'seq_len: 8\nbatch_size: 1\nsources:\n' >'g[1]/c.yaml'
    printf -- '- {path: "%s.bin", format: raw, dtype: u16, eos: 0, name: %s, weight: %s}\n' \
        '*' one "${weight%=*}" a two 1 >>'g[1]/c.yaml'
    status 0 "weight: ${weight#*=}" "$ringpack" config show -c 'g[1]/c.yaml'
    status 0 '  rows ' "$ringpack" plan -c 'g[1]/c.yaml'
done
for weight in -0.0 1e-7 1e 1e1.5 1e99 1_000 0x10 nan .inf inf 'np.float64(0.7)' \
    9223372036854775808; do
    sed "s/weight: 1e2/weight: $weight/" 'g[1]/c.yaml' >'g[1]/w.yaml'
    refuses 'weight: expected a' "$ringpack" plan -c 'g[1]/w.yaml'
done
for weight in 0; do # the source waits; version 1 has no such source
    sed "s/weight: 1e2/weight: $weight/" 'g[1]/c.yaml' >'g[1]/w.yaml'
    status 0 '  rows ' "$ringpack" plan -c 'g[1]/w.yaml'
    refuses 'weight: expected a' "$ringpack" plan -c 'g[1]/w.yaml' --stream-version 1
done

# Counts as programs print them; two token counts without a common scale get the advice to round
# them.
for count in 1e3 1.0e3 1000.0 10e2; do
    "$ringpack" plan -c 'g[1]/c.yaml' --num-epochs endless --rows "$count" --json >report
    equals 1000 "$(counts rows)"
    "$ringpack" config show -c 'g[1]/c.yaml' --seq-len "$count" >said
    grep -Eq '^ *seq_len .*[^0-9]1000$' said || fail "seq_len is not $count: $(cat said)"
done
for count in 1.5 1e-1 1_000 0x10 nan; do
    refuses 'seq_len: expected a whole number' "$ringpack" plan -c 'g[1]/c.yaml' --seq-len "$count"
done
printf 'seq_len: 8\nbatch_size: 1\nsources:\n' >c.yaml
for one in a=9312345678901 b=1312345678903; do
    printf -- '- {path: short.bin, format: raw, dtype: u16, eos: 0, name: %s, weight: %s}\n' \
        "${one%=*}" "${one#*=}" >>c.yaml
done
refuses 'no common scale|use fewer digits' "$ringpack" plan -c c.yaml
