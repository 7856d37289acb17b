#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack plan: its numbers against a corpus that can be counted by hand.
source "${0%/*}/kit.sh"

# field EXPRESSION: of the report in `report`
field() { "$python" -c "import json; r = json.load(open('report')); print($1)"; }
is() { [ "$2" = "$3" ] || fail "$1: expected $2, found $3: $(cat report)"; }

# a: 600 documents of 40 tokens; b: 100 documents of 80 tokens and 100 empty ones
"$python" - <<'PYTHON'
import array
open("a.bin", "wb").write(array.array("H", ([9] * 39 + [0]) * 600).tobytes())
lengths = array.array("i", [80, 0] * 100)
pointers, at = array.array("q"), 0
for length in lengths:
    pointers.append(at)
    at += 2 * length
open("b.bin", "wb").write(array.array("H", [7] * 8000).tobytes())
with open("b.idx", "wb") as idx:
    idx.write(b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([8]))
    idx.write((200).to_bytes(8, "little") + (201).to_bytes(8, "little"))
    idx.write(lengths.tobytes() + pointers.tobytes())
    idx.write(array.array("q", range(201)).tobytes())
PYTHON
cat >c.yaml <<'YAML'
sources:
- {path: a.bin, format: raw, dtype: u16, eos: 0, weight: 0.75}
- {path: b.bin, weight: 0.25}
seq_len: 120
batch_size: 4
packing_buffer: 16
YAML

"$ringpack" plan -c c.yaml --json >report
is complete True "$(field "r['complete']")"
is documents 800 "$(field "r['documents']")"
is empty 100 "$(field "r['empty']")"
is tokens 32000 "$(field "r['tokens']")"
is padding 0 "$(field "r['padding'] % 120 and r['rows'] * 120 - 32000 - r['padding']")"
is rows "$(field "r['rows']")" "$(field "(r['tokens'] + r['padding']) // 120")"
is steps "$(field "-(-r['rows'] // 4)")" "$(field "r['steps']")"
is histogram "$(field "r['rows']")" \
    "$(field "sum(b['rows'] for b in r['documents_per_row_histogram'])")"
is asked "0.75 0.25" "$(field "*(m['asked'] for m in r['mixture'])" | tr -d "(),")"
is realised "24000 8000" "$(field "*(m['tokens'] for m in r['mixture'])" | tr -d "(),")"
[ "$(field "r['efficiency'] > 0.99")" = True ] || fail "efficiency: $(cat report)"

# While both sources last, the mixture is the wanted one.
"$ringpack" plan -c c.yaml --json --num-epochs endless --rows 1k >report
is rows 1000 "$(field "r['rows']")"
is complete False "$(field "r['complete']")"
is steps None "$(field "r['steps']")"
is share True "$(field "abs(r['mixture'][0]['realised'] - 0.75) < 0.002")"

# Cuts are counted: rows of 50 tokens hold one whole document and a fifth of the next.
sed -i '/b.bin/d' c.yaml
"$ringpack" plan -c c.yaml --json --packing concat --seq-len 50 >report
is cuts True "$(field "abs(r['cuts_per_100_documents'] - 60) < 0.5")"
is padding 0 "$(field "r['padding']")"

"$ringpack" plan -c c.yaml --json --long-doc drop --seq-len 30 --stream-version 1 >report
is dropped 24000 "$(field "r['dropped'] + r['trailing_tokens']")"
is documents 600 "$(field "r['documents'] + r['trailing_documents']")"
is rows 0 "$(field "r['rows']")"

"$ringpack" plan -c c.yaml >report
grep -q 'efficiency  *100.000 %' report || fail "$(cat report)"
refuses 'seq_len: expected 1 … 16777216, found 0' "$ringpack" plan -c c.yaml --seq-len 0
sed s/packing_buffer/packing_bufer/ c.yaml >typo.yaml
refuses 'typo.yaml:5:1: packing_bufer: unknown key; did you mean `packing_buffer`?' \
    "$ringpack" plan -c typo.yaml
refuses 'absent.yaml' "$ringpack" plan -c absent.yaml
refuses "--rows" "$ringpack" plan -c c.yaml --rows none
echo "ringpack plan: as expected"
