#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unnoticed mistakes of users: each is refused, or reported, by name.
source "${0%/*}/kit.sh"

engine=
trap 'kill $engine 2>/dev/null || :; rm -rf "$scratch"' EXIT

# --- options that are misspelt
# the list of keys says of each whether it may change, as the contract does
"$ringpack" config keys | sed '/^KEYS OF/,$d' | awk '/^  [a-z]/ { key = $1; next }
    key { print key, /must not change/ ? "must stay" : "may change"; key = "" }' | sort >said
"$ringpack" config show --json | "$python" -c '
import json, sys
for name, key in json.load(sys.stdin).items():
    print(name, key["at_resume"])' | sort >known
[ "$(wc -l <known)" -gt 20 ] || fail "config show lists no keys"
diff <(sed 's|,.*||' known) said || fail "config keys says otherwise" # a condition follows a comma
"$ringpack" help | grep -A9 '^Watch a run:$' | grep -q '^  top ' || fail "verbs are not grouped"
refuses "did you mean \`torchtitan\`" "$ringpack" plan --sources x --profile torchtita
refuses "unrecognized option '--seqlen'; did you mean \`--seq-len\`?|ringpack help serve" \
    "$ringpack" serve --seqlen 8
refuses 'did you mean `--batches`?' "$ringpack" read x --batch 3 --batchez=4
refuses '--digest-steps needs --digest-log' "$ringpack" read x --digest-steps 3
refuses 'did you mean `--force`?' "$ringpack" convert --forec -o x y
refuses 'did you mean `--scan`?' "$ringpack" inspect --scna x
refuses "unrecognized option '--zzzzzzzzzz'|ringpack help stat" "$ringpack" stat --zzzzzzzzzz
! grep -q 'did you mean' said || fail "a suggestion out of nothing: $(cat said)"

# --- a number that could be two numbers
head -c 60000 /dev/urandom | base64 >a.txt
"$ringpack" convert -q --split-bytes 500 -o a a.txt
cat >c.yaml <<'YAML'
sources: [a]
seq_len: 8k
batch_size: 1
YAML
refuses 'c.yaml:2:10: seq_len: `8k` could be 8000 or 8192|write 8000, or 8ki for 8192' \
    "$ringpack" plan -c c.yaml
sed -i "s/8k/128/" c.yaml
refuses 'seq_len: `1M` could be 1000000 or 1048576' "$ringpack" plan -c c.yaml --seq-len 1M
status 0 'rows' "$ringpack" plan -c c.yaml --seq-len 8000
status 0 'rows' "$ringpack" plan -c c.yaml --seq-len 8Ki
for line in 'seed: 0100' 'stages: [{until: 8 steps}, {packing_buffer: 0100}]' \
    'skip: {rows: [0100]}' 'streams: {a: {seed: 0100}}' 'cost: 0100'; do
    { cat c.yaml; echo "$line"; } >octal.yaml
    refuses 'octal.yaml:4:|`0100` could be 100 or 64|write 100, or 64' \
        "$ringpack" plan -c octal.yaml
done
for line in 'seed: 007' 'seed: "0100"' 'streams: {a: {seed: "0100"}}'; do
    { cat c.yaml; echo "$line"; } >octal.yaml
    status 0 'rows' "$ringpack" plan -c octal.yaml --packing-buffer 0100
done

# --- numbers that are too large are refused with their range, empty lists as empty
for pair in 'seq-len 99999999999 1 … 16777216' 'open-bins 100000000000 1 … 4096' \
    'seed 99999999999999999999999 0 … 18446744073709551615'; do
    read -r key value range <<<"$pair"
    refuses "expected $range, found \`$value\`" "$ringpack" plan -c c.yaml --$key $value
done
printf 'sources: []\nseq_len: 8\nbatch_size: 1\n' >none.yaml
refuses 'none.yaml:1: sources: expected at least one source, found an empty list' \
    "$ringpack" plan -c none.yaml
"$ringpack" config keys | tr -s ' \n' ' ' | grep -q '0 or endless: without end' ||
    fail 'the list of keys does not say what num_epochs: 0 means'

# --- paths
refuses 'inspect: expected a path, found an empty text' "$ringpack" inspect ''
! "$ringpack" inspect / >said 2>&1 || fail "/ is no corpus: $(cat said)"
! grep -q '//' said || fail "a path with two slashes: $(cat said)"
refuses 'kept: no file has that name, and no engine of that name answers|a directory of them' \
    "$ringpack" explain kept --step 1

# --- a URL where something is written: a folder named `s3:` would be made
for key in checkpoint-dir checkpoint-mirror-dir run-dir mount-guard-dir cache-dir index-dir; do
    for verb in 'config check' doctor serve plan; do
        refuses "${key//-/_}: expected a path on a disk of this machine|found a URL (s3://)" \
            "$ringpack" $verb -c c.yaml --$key 's3://bucket/run?secret=xyzzy'
        ! grep -q xyzzy said || fail "a right was shown: $(cat said)"
    done
done
sed 's,^,,;$acheckpoint_dir: gs://bucket/run' c.yaml >url.yaml
refuses 'url.yaml:4:17: checkpoint_dir: expected a path' "$ringpack" doctor -c url.yaml
while read -r option words; do
    # shellcheck disable=SC2086
    refuses "--$option: expected a path on a disk of this machine|found a URL (s3://)" \
        "$ringpack" $words
done <<'WORDS'
output convert -o s3://b/out a.txt
output index -c c.yaml -o s3://b/m.rpi
index-dir index --index-dir s3://b a.bin
output config init -o s3://b/c.yaml
output explain -c c.yaml --step 1 -o s3://b/page.html
output state -c c.yaml --step 1 -o s3://b/token
output checkpoint export . -o s3://b/token
output report x -o s3://b/page.html
svg plan -c c.yaml --svg s3://b/plan.svg
rows-log read x --rows-log s3://b/rows
digest-log read x --digest-log s3://b/digests
dir demo --dir s3://b/demo
WORDS
[ -z "$(ls -d -- *: 2>/dev/null)" ] || fail "a folder was made: $(ls)"

# --- labels are kept, and lines whose masks differ are refused
echo '{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}' >masked.jsonl
"$ringpack" convert -q --no-append-eos -o masked masked.jsonl
status 0 'labels' "$ringpack" inspect masked
cp masked.jsonl mixed.jsonl
echo '{"input_ids": [1, 2, 3], "loss_mask": [1, 1, true], "labels": null}' >>mixed.jsonl
refuses 'mixed.jsonl:2: two masks|`labels`|`loss_mask`|--mask none' \
    "$ringpack" convert --no-append-eos -o mixed mixed.jsonl
[ ! -e mixed.bin ] || fail 'a corpus was written'
"$ringpack" convert -q --no-append-eos --mask none -o mixed mixed.jsonl

# --- weights that a source is too short for
head -c 3000 a.txt >b.txt
"$ringpack" convert -q --split-bytes 500 -o b b.txt
cat >w.yaml <<'YAML'
sources: [{path: a, weight: 0.25}, {path: b, weight: 0.75}]
seq_len: 128
batch_size: 1
YAML
status 0 'max_epochs reached at row|warning: the weights do not hold to the end' \
    "$ringpack" plan -c w.yaml
"$ringpack" plan -c w.yaml --json --num-epochs endless --rows 1k >report
"$python" - <<'PYTHON' || fail "$(cat report)"
import json
a, b = json.load(open("report"))["mixture"]
assert not a["misses_share"] and not b["misses_share"]
assert 28 < b["times_read"] < 34 and a["times_read"] < 0.5, (a, b)
PYTHON
"$ringpack" plan -c w.yaml >said
grep -Eq '^  b .* 1\.00$' said || fail "b is read once: $(cat said)"
sed -i 's/0.75/0.00925/' w.yaml # as much as b has
"$ringpack" plan -c w.yaml >said
! grep -q warning said || fail "the weights hold: $(cat said)"

# --- a dataset in a folder whose name is a pattern
mkdir 'g[1]'
cp a.bin a.idx 'g[1]/'
status 0 'rows' "$ringpack" plan --source 'g[1]/a' --seq-len 128 --batch-size 1
status 2 'g[1]/none: cannot open' \
    "$ringpack" plan --source 'g[1]/none' --seq-len 128 --batch-size 1

# --- states: of a checkpoint, of a state_dict with its zeros
printf 'run: x\nrun_dir: run\ncheckpoint_dir: saved\n' >>c.yaml
"$ringpack" serve -c c.yaml 2>serve.log &
engine=$!
wait_for grep -q 'serving run' serve.log
refuses '--batches: expected 1 or more, found `0`' "$ringpack" read x --run-dir run --batches 0
"$ringpack" read x --run-dir run --batches 7 --save-state token >/dev/null
kill "$engine"
wait "$engine" || fail "$(cat serve.log)"
saved=$(echo saved/*.rpc)
refuses 'expected .token, .json, .npz, .safetensors or .pt|ends in one of these' \
    "$ringpack" checkpoint export "$saved" -o x.foo
head -c 512 /dev/zero | cat token - >padded
for state in "$saved" token padded; do
    "$ringpack" serve -c c.yaml --checkpoint-dir "again-$state" --state "$state" 2>serve.log &
    engine=$!
    wait_for grep -q 'from row 7' serve.log
    kill "$engine"
    wait "$engine" || fail "$(cat serve.log)"
done
status 0 "plan digest" "$ringpack" inspect "$saved"
printf x | dd of="$saved" bs=1 seek=100 conv=notrunc status=none
status 2 'RP_E_CORRUPT|ringpack checkpoint list' "$ringpack" checkpoint show "$saved"
status 2 'RP_E_CORRUPT|ringpack checkpoint list' "$ringpack" serve -c c.yaml --state "$saved"
truncate -s 100 "$saved"
status 2 'RP_E_CORRUPT|ringpack checkpoint list' "$ringpack" checkpoint show "$saved"

# --- a machine without /proc
hidden=(unshare -rm sh -c 'mount -t tmpfs none /proc && exec "$@"' sh)
if "${hidden[@]}" true 2>/dev/null; then
    refuses 'mount /proc' \
        "${hidden[@]}" timeout 600 "$ringpack" serve -c c.yaml --checkpoint-dir other
    refuses 'mount /proc' "${hidden[@]}" "$ringpack" convert -q -o hidden a.txt
fi
echo 'mistakes: fine'
