#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack checkpoint: list, show, verify and rewind, on files made from FORMAT.md.
source "${0%/*}/kit.sh"
golden=${RP_SOURCE_DIR:?top of the source tree}/tests/golden

json() { "$ringpack" checkpoint "$@" --json >said || true; }
field() { "$python" -c "import json; said = json.load(open('said')); print($1)"; }
damage() { printf '\x77' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
name() { printf 'run/checkpoint-%012d.rpc' "$1"; }

# --- only the golden file
status 0 'next row|56 tokens in rows 7 to 9|, packing_buffer 8|796704537621|run: golden-1' \
    "$ringpack" checkpoint show "$golden/checkpoint-v1.rpc"
status 0 '1 checked, 0 damaged' "$ringpack" checkpoint verify "$golden/checkpoint-v1.rpc"
json show "$golden/checkpoint-v1.rpc"
equals 7 "$(field "said['next_row']")"
equals lookahead "$(field "said['token']['packing']")"
equals 56 "$(field "said['contents']['tokens']")"

# --- the contract, by field and hash. A state token carries the fields of the stream
stream=$("$python" -c "
import json
print(json.load(open('$golden/contract-v1.json'))['lookahead-pad']['identity'])")
"$python" - "$golden" >state <<'PYTHON'
import json
import pathlib
import sys

vector = json.loads((pathlib.Path(sys.argv[1]) / "stream-v1" / "lookahead-pad.json").read_text())
sys.stdout.buffer.write(bytes.fromhex(vector["states"][0]["token"]) + bytes(100))
PYTHON
for file in "$golden/checkpoint-v1.rpc" state; do
    status 0 "stream contract $stream|  seed                   796704537621" \
        "$ringpack" checkpoint show "$file"
    json show "$file"
    equals "$stream" "$(field "said['contract_hashes']['stream']")"
    equals None "$(field "said['contract_hashes']['delivery']")"
    equals 120 "$(field "said['contract']['source[0000].documents']")"
done
equals 7 "$(field "said['next_row']")"
status 0 "stream contract $stream" "$ringpack" inspect state
status 0 "stream contract $stream|contents" "$ringpack" inspect "$golden/checkpoint-v1.rpc"
head -c 300 state >cut
status 2 'cut: state token' "$ringpack" checkpoint show cut

# --- paths that are wrong
mkdir empty
printf 'no checkpoint' >foreign.rpc
status 2 'missing.rpc' "$ringpack" checkpoint show missing.rpc
status 2 'missing' "$ringpack" checkpoint list missing
status 2 'empty|no checkpoint is here' "$ringpack" checkpoint show empty
status 2 'empty|no checkpoint is here' "$ringpack" checkpoint verify empty
status 0 'no checkpoints' "$ringpack" checkpoint list empty
status 2 'foreign.rpc|RP_E_CORRUPT' "$ringpack" checkpoint show foreign.rpc
status 1 'foreign.rpc|1 damaged' "$ringpack" checkpoint verify foreign.rpc
status 2 'expected list, show' "$ringpack" checkpoint forget empty
status 2 'expected an action and a path' "$ringpack" checkpoint list
status 2 '--to' "$ringpack" checkpoint rewind empty
status 2 'a sequence number' "$ringpack" checkpoint rewind empty --to seven
status 0 'rewind DIR' "$ringpack" checkpoint --help

# --- a directory: three good ones
mkdir run
for later in 0 1 2; do
    "$python" "$golden/make_checkpoint.py" "$later" >"$(name $((7 + later)))"
done
cmp -s "$(name 7)" "$golden/checkpoint-v1.rpc" ||
    fail 'FORMAT.md no longer describes checkpoint-v1.rpc'
rows=$("$ringpack" checkpoint list run --json | "$python" -c '
import json, sys
entries = json.load(sys.stdin)
assert [entry["sequence"] for entry in entries] == [9, 8, 7], entries
assert all(entry["status"] == "good" for entry in entries), entries
print(*[entry["next_row"] for entry in entries])')
read -r row9 row8 row7 <<<"$rows"
status 0 "$(name 9)|sequence        9" "$ringpack" checkpoint show run
status 0 '3 checked, 0 damaged' "$ringpack" checkpoint verify run

# --- rewind, by number and by row, and back by hand
status 2 'no checkpoint with sequence 5' "$ringpack" checkpoint rewind run --to 5
status 2 'has a position of' "$ringpack" checkpoint rewind run --to-row $((row7 - 1))
status 0 "now checkpoint 8, at row $row8" "$ringpack" checkpoint rewind run --to-row $((row9 - 1))
status 0 'rewound' "$ringpack" checkpoint list run
status 0 'sequence        8' "$ringpack" checkpoint show run
status 0 '2 checked, 0 damaged' "$ringpack" checkpoint verify run
status 0 "now checkpoint 7, at row $row7" "$ringpack" checkpoint rewind run --to 7
mv "$(name 9).rewound" "$(name 9)"
mv "$(name 8).rewound" "$(name 8)"

# --- damage: the state costs the file, contents cost re-reading
damage "$(name 9)" 8300
status 0 'damaged at byte 8192' "$ringpack" checkpoint list run
status 0 'sequence        8' "$ringpack" checkpoint show run
status 1 'damaged at byte 8192|3 checked, 1 damaged' "$ringpack" checkpoint verify run
status 1 '1 damaged' "$ringpack" checkpoint verify "$(name 9)"
status 2 'damaged at byte 8192|next:' "$ringpack" checkpoint show "$(name 9)"
status 2 'damaged at byte 8192' "$ringpack" checkpoint rewind run --to 9
damage "$(name 8)" 16400
status 0 'they will be read again' "$ringpack" checkpoint show run
status 1 'the stream is safe|3 checked, 2 damaged' "$ringpack" checkpoint verify run
json verify run
equals '3 2' "$(field "said['checked'], said['damaged']" | tr -d '(),')"
status 2 'RP_E_CORRUPT|damaged at byte 8192' "$ringpack" checkpoint rewind run --to 9

# --- a token that belongs to another row, and a file with a contract
cat >made.py <<'PYTHON'
import sys

sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import json
import pathlib

import make_checkpoint as make

vector = json.loads((pathlib.Path(sys.argv[1]) / "stream-v1" / "lookahead-pad.json").read_text())
token = bytes.fromhex(vector["states"][0]["token"])
contents = [(make.CONTENTS, text.encode()) for text in sys.argv[3:]]
sections = [(make.STATE, token), *contents, (make.CONTRACT, b"a contract")]
row = int(sys.argv[2])
sys.stdout.buffer.write(make.checkpoint(8, row, row, bytes(16), 1, 1, "x", "y", sections))
PYTHON
"$python" made.py "$golden" 6 >"$(name 8)"
status 1 'next_row 6, its state token 7' "$ringpack" checkpoint verify "$(name 8)"
status 2 'next_row 6, its state token 7' "$ringpack" checkpoint show "$(name 8)"

# --- damage to the contract, which no run needs, and to the padding after it
equals '[None, None, None]' "$("$ringpack" checkpoint list run --json | "$python" -c '
import json, sys
print([entry["damaged_section"] for entry in json.load(sys.stdin)])')"
for behind in 0 4000; do
    "$python" made.py "$golden" 7 >"$(name 8)"
    size=$(wc -c <"$(name 8)")
    damage "$(name 8)" $((size - 8192 + behind))
    status 0 'section 4, which no run needs, is damaged' "$ringpack" checkpoint list run
    status 1 'section 4, which no run needs: the stream is safe|1 damaged' \
        "$ringpack" checkpoint verify "$(name 8)"
    status 0 'sequence        8' "$ringpack" checkpoint show "$(name 8)"
done
equals '[None, 4, None]' "$("$ringpack" checkpoint list run --json | "$python" -c '
import json, sys
print([entry["damaged_section"] for entry in json.load(sys.stdin)])')"

# --- and to the contents as well
"$python" made.py "$golden" 7 'not a record' >"$(name 8)"
damage "$(name 8)" $(($(wc -c <"$(name 8)") - 8192))
status 0 'they will be read again)  (section 4, which no run needs' \
    "$ringpack" checkpoint list run
status 1 'its contents, which will be read again, and section 4, which no run needs' \
    "$ringpack" checkpoint verify "$(name 8)"
echo 'checkpoint: fine'
