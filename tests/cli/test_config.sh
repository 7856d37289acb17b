#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack config: the values shown, compared and written are those that the engine reads.
source "${0%/*}/kit.sh"

# field EXPRESSION: of the JSON in `said`
field() { "$python" -c "import json; r = json.load(open('said')); print($1)"; }

mkdir corpus
head -c 4000 /dev/zero >corpus/a.bin
head -c 4000 /dev/zero >"corpus/odd #1: name.bin"
cat >one.yaml <<'YAML'
sources:
- {name: web, path: corpus/a.bin, format: raw, dtype: u16, eos: 0, weight: 0.75}
seq_len: 64
batch_size: 2
run_dir: here
YAML

# ---- show: values, their origin, and whether they may change
status 0 "one.yaml:3|--batch-size|0.75|must stay|may change" \
    "$ringpack" config show -c one.yaml --batch-size=4
status 0 "" "$ringpack" config show --json -c one.yaml --batch-size=4
equals "64 one.yaml:3 True must stay" \
    "$(field "*(r['seq_len'][k] for k in ('value', 'from', 'given', 'at_resume'))" | tr -d "(),'")"
equals "4 --batch-size" "$(field "r['batch_size']['value'] + ' ' + r['batch_size']['from']")"
equals "None False" "$(field "str(r['cpus']['value']) + ' ' + str(r['cpus']['given'])")"
equals "['corpus/a.bin']" "$(field "r['sources']['value'][0]['shards']")"
equals "64" "$("$ringpack" config show seq_len -c one.yaml)"
equals "" "$("$ringpack" config show cpus -c one.yaml)"
equals "8" "$("$ringpack" config show seq_len -c one.yaml --seq-len=8)"
refuses "did you mean \`seq_len\`" "$ringpack" config show seq_lan -c one.yaml
# Every key that `config keys` lists is shown, and no other.
"$ringpack" config keys | sed '/^KEYS OF/,$d' | sed -nE 's/^  ([a-z_]+) .*/\1/p' | sort >of_help
"$ringpack" config show --json >said
field "'\n'.join(sorted(r))" >of_show
equals "$(grep . of_show)" "$(cat of_help)"

# ---- keys
status 0 "must not change on resume|may change on resume, at a stage" \
    "$ringpack" config keys
equals "seq_len pad_id" "$("$ringpack" config keys seq-len pad_id | grep -oE '^  [a-z_]+' | xargs)"
equals 1 "$("$ringpack" config keys mask_of | grep -c '^  mask_of')" # a source's key
refuses "keys: there is no key \`grouq\`; did you mean \`group\`" "$ringpack" config keys grouq
# No help buries the options of a verb below the config's.
for verb in $("$ringpack" help | sed -nE 's/^  ([a-z]+) +[^ ].*/\1/p'); do
    lines=$("$ringpack" help "$verb" | wc -l)
    [ "$lines" -le 50 ] || fail "the help of $verb has $lines lines, expected 50 at most"
done
"$ringpack" config keys | grep -A1 -wE '^  (mask|mask_value|mask_of)' >masks
equals 3 "$(grep -c "may change on resume, if the same tokens are trained" masks)"

# ---- check
status 0 "one.yaml: fine" "$ringpack" config check -c one.yaml
{ cat one.yaml; echo 'streams: {train: {}, eval: {batch_size: 3, global_batch_size: 4}}'; } \
    >two-streams.yaml
refuses "stream eval: two-streams.yaml:6: batch_size" "$ringpack" config check -c two-streams.yaml
refuses "stream eval: two-streams.yaml:6: batch_size" "$ringpack" doctor -c two-streams.yaml
grep -v batch_size one.yaml >short.yaml
refuses "batch_size: required" "$ringpack" config check -c short.yaml
refuses "no such file|absent.bin" \
    "$ringpack" config check --sources=absent.bin --seq-len=8 --batch-size=1
! grep -q "was written" said || fail "check speaks of writing: $(cat said)"

# ---- sections: added to a given profile's, in the file or as options
sections() { "$ringpack" config contract "$@" | grep -o 'sections=.*'; }
always=rows,doc_lens,input_ids
{ cat one.yaml; echo 'sections: [segment_ids]'; } >listed.yaml
{ cat listed.yaml; echo 'profile: hf'; } >both.yaml
alone=sections=$always,segment_ids
added=sections=$always,labels,position_ids,segment_ids,cu_seqlens
equals "$alone" "$(sections -c listed.yaml)"
equals "$alone" "$(sections -c one.yaml --sections=segment_ids)"
equals "$added" "$(sections -c both.yaml)"
equals "$added" "$(sections -c one.yaml --profile=hf --sections=segment_ids)"
equals "$added" "$(sections -c listed.yaml --profile=hf)"
"$ringpack" config check -c both.yaml >said
! grep -q warning said || fail "a warning about a list that only adds: $(cat said)"
status 0 "profile hf adds position_ids,cu_seqlens to the list|leave \`profile\` out" \
    "$ringpack" config check -c both.yaml --sections=labels

# ---- packers: a number, or auto, which shows as it was given
equals "auto" "$("$ringpack" config show packers -c one.yaml)"
equals "auto" "$("$ringpack" config show packers -c one.yaml --packers=auto)"
equals "3" "$("$ringpack" config show packers -c one.yaml --packers=3)"
refuses "packers: expected 1 … 64, found 0" "$ringpack" config check -c one.yaml --packers=0
refuses "a whole number or \`auto\`" "$ringpack" config check -c one.yaml --packers=all

# ---- diff: 0 without a difference, 1 with one
status 0 "" "$ringpack" config diff one.yaml one.yaml
sed -e 's/seq_len: 64/seq_len: 32/' -e 's/0.75/0.5/' -e 's/batch_size: 2/batch_size: 3/' \
    -e 's/eos: 0/eos: 1/' one.yaml >two.yaml
echo 'seed: 0 # the default, so it is no difference' >>two.yaml
words="seq_len: must stay|batch_size: may change|weight: may change, at a stage"
status 1 "$words|eos: must stay" "$ringpack" config diff one.yaml two.yaml
status 1 "" "$ringpack" config diff --json one.yaml two.yaml
equals "4" "$(field "len(r)")"
sed 's/name: web/name: book/' one.yaml >three.yaml
status 1 "web|book|(not there)" "$ringpack" config diff one.yaml three.yaml
# Lists of shards that are longer than the printed part; and a comma is part of a name.
shards() { printf 'corpus/a-long-name-of-a-shard-number-%04d.bin,' $(seq 200); }
printf 'sources: [{name: web, shards: [%s %s]}]\n' "$(shards)" last.bin >long.yaml
printf 'sources: [{name: web, shards: [%s %s]}]\n' "$(shards)" other.bin >longer.yaml
printf 'sources: [{name: web, shards: [%s]}]\n' "$(shards)" >shorter.yaml
status 0 "" "$ringpack" config diff long.yaml long.yaml
status 1 "source web: shards|(201 shards) number 201: last.bin|number 201: other.bin" \
    "$ringpack" config diff long.yaml longer.yaml
status 1 "(200 shards) number 201: (not there)" "$ringpack" config diff shorter.yaml long.yaml
echo 'sources: [{name: web, shards: ["a,b"]}]' >comma.yaml
echo 'sources: [{name: web, shards: [a, b]}]' >commas.yaml
status 1 "source web: shards|- a,b|(2 shards) number 1: a" \
    "$ringpack" config diff comma.yaml commas.yaml
# The order of sources is part of the plan of version 1.
echo 'sources: [{name: web, path: a.bin}, {name: book, path: b.bin}]' >order.yaml
echo 'sources: [{name: book, path: b.bin}, {name: web, path: a.bin}]' >other.yaml
status 1 "place of source web: may change|place of source book: may change" \
    "$ringpack" config diff order.yaml other.yaml
for name in order other; do
    { cat $name.yaml; echo 'stream_version: 1'; } >old-$name.yaml
done
status 1 "" "$ringpack" config diff --json old-order.yaml old-other.yaml
equals "must stay must stay" "$(field "' '.join(d['at_resume'] for d in r)")"
equals "1 2" "$(field "r[0]['first'] + ' ' + r[0]['second']")"
sed 's/eos: 0/eos: 0, mask: none/' one.yaml >unmasked.yaml
status 1 "source web: mask: may change, if the same tokens are trained" \
    "$ringpack" config diff one.yaml unmasked.yaml
# Keys whose fields of the contract have another name, and older names of keys.
{ cat one.yaml; printf 'row_gap: split\nconsumers_per_rank: 2\n'; } >gap.yaml
{ cat one.yaml; printf 'fill: split\nreplicas: 2\n'; } >fill.yaml
status 1 "row_gap: must stay|consumers_per_rank: may change" \
    "$ringpack" config diff one.yaml gap.yaml
status 0 "\`fill\` is now \`row_gap\`|\`replicas\` is now \`consumers_per_rank\`" \
    "$ringpack" config diff gap.yaml fill.yaml
{ cat one.yaml; echo 'stages: [{until: 5 steps}, {fill: split}]'; } >stage.yaml
status 0 "\`fill\` is now \`row_gap\`|stage.yaml: fine" \
    "$ringpack" config check -c stage.yaml
{ cat gap.yaml; echo 'fill: split'; } >both-names.yaml
refuses "given twice" "$ringpack" config check -c both-names.yaml
{ cat one.yaml; printf 'stream_version: 1\nlanes: 2\n'; } >lanes.yaml
sed s/lanes/plan_partitions/ lanes.yaml >partitions.yaml
sed s/lanes.*// lanes.yaml >version-1.yaml
status 0 "\`lanes\` is now \`plan_partitions\`" "$ringpack" config diff lanes.yaml partitions.yaml
status 1 "plan_partitions: must stay" "$ringpack" config diff version-1.yaml partitions.yaml
# `window` is the older name of two keys: of the one of the packing.
for names in "lookahead packing_buffer open_bins" "best_fit open_bins packing_buffer"; do
    read -r packing size other <<<"$names"
    { cat one.yaml; printf 'packing: %s\n' "$packing"; } >packing.yaml
    { cat packing.yaml; echo "$size: 8"; } >size.yaml
    { cat packing.yaml; echo "window: 8"; } >window.yaml
    { cat packing.yaml; echo "$other: 8"; } >other.yaml
    status 1 "$size: must stay" "$ringpack" config diff packing.yaml size.yaml
    status 0 "\`window\` is now \`packing_buffer\`, or, with packing: best_fit, \`open_bins\`" \
        "$ringpack" config diff size.yaml window.yaml
    refuses "$other: it is the size of packing" "$ringpack" config check -c other.yaml
done
# A difference far behind in a value.
many() { printf 'skip: {rows: [%s %s]}\n' "$(seq -s, 10 10 20000)," "$1"; }
{ cat one.yaml; many 30001; } >rows.yaml
{ cat one.yaml; many 30002; } >other-rows.yaml
status 1 "skip: may change|20000, 30001]|20000, 30002]" \
    "$ringpack" config diff rows.yaml other-rows.yaml
status 0 "" "$ringpack" config diff rows.yaml rows.yaml
refuses "expected two configs" "$ringpack" config diff one.yaml
refuses "nowhere.yaml" "$ringpack" config diff one.yaml nowhere.yaml

# ---- older names of keys: read with a word, in a file and as an option; not with the newer one
{ cat one.yaml && echo "num_workers: 3"; } >older.yaml
status 0 '`num_workers` is now `readers`; the next version does not read the older name' \
    "$ringpack" config check -c older.yaml
equals 3 "$("$ringpack" config show readers -c older.yaml 2>/dev/null)"
status 0 '`direct` is now `o_direct`' "$ringpack" config check -c one.yaml --direct=off
refuses "unrecognized option '--drop-unmasked'" \
    "$ringpack" config check -c one.yaml --drop-unmasked=true # a key of a source
status 0 "fine" "$ringpack" config check -c one.yaml --drop=true # short for --drop-last
echo "readers: 4" >>older.yaml
refuses "the key is given twice" "$ringpack" config check -c older.yaml
refuses "there is no key" "$ringpack" config keys num_workers

# ---- stages: shown and compared one by one; refused with a place, or by the version
cat >staged.yaml <<'YAML'
stream_version: 2
sources:
- {name: web, path: corpus/a.bin, format: raw, dtype: u16, eos: 0}
- {name: books, path: "corpus/odd #1: name.bin", format: raw, dtype: u16, eos: 0, weight: 0}
seq_len: 64
batch_size: 2
run_dir: here
stages:
- until: 20 steps
- {until: row 100, weights: {web: 3, books: 1}, ramp: 32}
- weights: {books: 1}
skip: {steps: [7, 9-12]}
YAML
status 0 "staged.yaml: fine" "$ringpack" config check -c staged.yaml
equals "  - {until: 20 steps}
  - {until: row 100, weights: {web: 3, books: 1}, ramp: 32}
  - {weights: {books: 1}}" "$("$ringpack" config show stages -c staged.yaml)"
equals "{steps: [7, 9-12]}" "$("$ringpack" config show skip -c staged.yaml)"
equals "8" "$("$ringpack" config show skip -c staged.yaml --skip='{rows: 8}' | tr -cd 0-9)"
sed 's/row 100/row 104/' staged.yaml >later.yaml
status 1 "stage 1: may change, if they are not begun|until: row 100|until: row 104" \
    "$ringpack" config diff staged.yaml later.yaml
sed 's/row 100/row 101/' staged.yaml >within.yaml
refuses "within.yaml:10:11: until: row 101 is within a step of 2 rows; stage 1 may end at row 100" \
    "$ringpack" config check -c within.yaml
sed 's/books: 1}, ramp/bocks: 1}, ramp/' staged.yaml >unknown.yaml
refuses "unknown.yaml:10:38: weights: no source is named \`bocks\`; did you mean \`books\`?" \
    "$ringpack" config check -c unknown.yaml
sed '1s/2/1/' staged.yaml >older.yaml
refuses "older.yaml:9: stages: this key is of stream version 2|write \`stream_version: 2\`" \
    "$ringpack" config check -c older.yaml
# A trainer's expectations: what a stage may set is in the hash of the files.
"$ringpack" config stream -c staged.yaml >had
"$ringpack" config stream -c later.yaml >has
equals "corpus_files corpus_paths" "$(diff had has | sed -n 's/^> \([a-z_]*\).*/\1/p' | xargs)"
equals "2" "$(sed -n 's/^stream_version=//p' had)"
equals "group ramp" "$("$ringpack" config keys group ramp | grep -oE '^  [a-z_]+' | xargs)"

# ---- init: the written file is read back, and is never overwritten
status 0 "new.yaml: written" \
    "$ringpack" config init corpus/a.bin "corpus/odd #1: name.bin" -o new.yaml --seed 7
status 0 "new.yaml: fine (sources: 2, files: 2)" "$ringpack" config check -c new.yaml
equals "7" "$("$ringpack" config show seed -c new.yaml)"
cp new.yaml before
refuses "new.yaml: File exists" "$ringpack" config init corpus/a.bin -o new.yaml
cmp new.yaml before
mkdir elsewhere
status 0 "written" "$ringpack" config init corpus/a.bin -o elsewhere/new.yaml
status 0 "fine" "$ringpack" config check -c elsewhere/new.yaml
refuses "no such file" "$ringpack" config init corpus/none.bin -o none.yaml
status 0 "written" "$ringpack" config init corpus/a.bin --checkpoint-dir kept \
    --stages '[{until: 5 steps}, {packing: concat}]' --skip '{rows: 8}' -o elsewhere/staged.yaml
status 0 "elsewhere/staged.yaml: fine" "$ringpack" config check -c elsewhere/staged.yaml
equals "$PWD/kept" "$("$ringpack" config show checkpoint_dir -c elsewhere/staged.yaml)"
printf '0\n' >taken.txt
printf '#!/bin/sh\n' >alert && chmod +x alert
status 0 "written" "$ringpack" config init corpus/a.bin --alert-command ./alert,--now \
    --stages '[{until: 5 steps}, {without: {a: taken.txt}}]' -o elsewhere/inner.yaml
status 0 "fine" "$ringpack" config check -c elsewhere/inner.yaml
equals "$PWD/./alert,--now" "$("$ringpack" config show alert_command -c elsewhere/inner.yaml)"
grep -q "without: {a: $PWD/taken.txt}" elsewhere/inner.yaml || fail "a path is relative"
[ ! -e none.yaml ] || fail "a config was written although its corpus is not there"
refuses "expected the paths" "$ringpack" config init
status 2 "No such file or directory" "$ringpack" config init corpus/a.bin -o nowhere/new.yaml
# Without its comments every default is set, and no key differs.
sed -E 's/^# ([a-z_]+: [^# ][^#]*)#.*/\1/' new.yaml >set.yaml
status 0 "" "$ringpack" config diff new.yaml set.yaml

refuses "expected keys, show, check, diff, init, stream or contract" "$ringpack" config shew
