#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run is named in one way by every verb about engines that run: RUN, --run RUN, or -c CONFIG.
source "${0%/*}/kit.sh"

mkdir run corpus
for i in $(seq 40); do echo "document $i of a corpus of forty documents"; done >corpus/text.jsonl
sed -i 's/.*/{"text": "&"}/' corpus/text.jsonl
"$ringpack" convert -q --tokenizer bytes -o web corpus/text.jsonl 2>said || fail "$(cat said)"
chmod 700 run
cat >run.yaml <<Y
run: named
run_dir: $scratch/run
sources: [web]
seq_len: 32
batch_size: 1
num_epochs: endless
checkpoint_dir: kept
Y
"$ringpack" serve -c run.yaml 2>log &
engine=$!
trap 'kill $engine 2>/dev/null; wait $engine 2>/dev/null; rm -rf "$scratch"' EXIT
answers() { "$ringpack" stat -c run.yaml >said 2>&1; }
wait_for answers
grep -q '"run": "named"' said || fail "stat: $(cat said)"

there=(--run-dir run)
for words in "named" "--run named" "--run=named" "-c run.yaml" "-crun.yaml" "--config=run.yaml"; do
    given=("${there[@]}")
    [[ $words == *run.yaml ]] && given=()
    # shellcheck disable=SC2086
    {
        status 0 '"run": "named"' "$ringpack" stat "${given[@]}" $words --json
        status 0 'named|running' "$ringpack" ps "${given[@]}" $words
        status 0 'named' "$ringpack" metrics --once "${given[@]}" $words
        status 0 '<html' "$ringpack" report "${given[@]}" $words
        status 0 'batches' "$ringpack" read "${given[@]}" $words --batches 2
    }
done
for words in "named" "--run named"; do
    # shellcheck disable=SC2086
    {
        status 0 'row 0' "$ringpack" explain "${there[@]}" $words --row 0
        status 0 'state token' "$ringpack" state "${there[@]}" $words --row 0 -o token
    }
done
for words in "named" "--run named" "-c run.yaml" "--config=run.yaml"; do
    given=("${there[@]}")
    [[ $words == *run.yaml ]] && given=()
    # shellcheck disable=SC2086
    {
        status 0 'entries' "$ringpack" journal "${given[@]}" $words
        rm -f t.json
        status 0 "state token of row" "$ringpack" checkpoint export "${given[@]}" $words -o t.json
        [ -s t.json ] || fail "export $words wrote nothing"
        status 0 'good|named' "$ringpack" checkpoint list "${given[@]}" $words
        status 0 'sequence|named' "$ringpack" checkpoint show "${given[@]}" $words
        status 0 '0 damaged' "$ringpack" checkpoint verify "${given[@]}" $words
    }
done
# a config elsewhere, whose paths are relative to it
mkdir elsewhere
(cd elsewhere && status 0 'entries' "$ringpack" journal -c ../run.yaml)
# a path goes before a run of its name
status 0 'the state token of row' "$ringpack" checkpoint export kept -o token.json
refuses 'expected one path or run, found also `named`' \
    "$ringpack" checkpoint export named -c run.yaml -o token.json
refuses 'expected a path, found -c' "$ringpack" checkpoint diff -c run.yaml
refuses 'nobody: no file, no directory, and no running engine' \
    "$ringpack" checkpoint list --run nobody "${there[@]}"
refuses 'nobody: cannot open' "$ringpack" checkpoint list nobody "${there[@]}"
refuses 'give one of them' "$ringpack" journal named -c run.yaml
refuses 'nobody' "$ringpack" checkpoint export nobody "${there[@]}" -o token.json
refuses 'give one of them' "$ringpack" stat --run named -c run.yaml
refuses 'no engine of that name' "$ringpack" explain nobody --row 0 "${there[@]}"
refuses 'run.yaml is a config|-c CONFIG' "$ringpack" explain run.yaml --row 0
refuses 'run.yaml is a config|-c CONFIG' "$ringpack" state run.yaml --row 0 -o token
refuses 'run directory nowhere: No such file' "$ringpack" ps --run-dir nowhere
refuses 'missing.yaml' "$ringpack" ps -c missing.yaml
# without its engine, the journal is the one in the config's checkpoint_dir
kill $engine
wait $engine 2>/dev/null || true
trap 'rm -rf "$scratch"' EXIT
status 0 'entries' "$ringpack" journal -c run.yaml
status 0 'entries' "$ringpack" journal -c kept/"$(cd kept && ls ./*.rpc | tail -1)"
status 0 '0 damaged' "$ringpack" checkpoint verify -c run.yaml
status 0 'the newest is now checkpoint' "$ringpack" checkpoint rewind -c run.yaml --to-row 1m
refuses 'no engine' "$ringpack" checkpoint export -c run.yaml -o token.json
# a value that looks like an option stays a value
refuses '' "$ringpack" stat --run-dir -c
