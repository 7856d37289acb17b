#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack annotate: columns of an index from each form of file, refusals, growth, a kill.
source "${0%/*}/kit.sh"

says() { grep -qF -e "$2" "$1" || fail "\`$2\` is not in: $(cat "$1")"; }
annotate() { "$ringpack" annotate -q -c c.yaml "$@"; }
columns() { "$ringpack" inspect --json m.rpi | "$python" -c "import json, sys
for source in json.load(sys.stdin)[0]['sources']:
    print(*(f\"{c['name']}:{c['type']}:{c['documents']}\" for c in source['columns']))"; }

# Two sources: of 6 documents in two shards, and of 3.
"$python" - <<'PYTHON'
import array, json, struct
def shard(name, documents):
    open(name, "wb").write(array.array("H", ([5, 6, 7]) * documents).tobytes())
def npy(name, descr, code, values):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (descr, len(values))
    head = head.ljust(117) + "\n"
    data = struct.pack("<%d%s" % (len(values), code), *values)
    open(name, "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + data)
shard("web0.bin", 4), shard("web1.bin", 2), shard("code.bin", 3)
npy("score.npy", "<f4", "f", [1, 4, 3, 5, 0, 2])
npy("few.npy", "<f4", "f", [1, 4, 3, 5, 0])
npy("nan.npy", "<f8", "d", [1, 4, 3, 5, 0, float("nan")])
npy("text.npy", "<U1", "I", [1, 4, 3, 5, 0, 2])
npy("stage.npy", "|i1", "b", [-1, 0, 1])
npy("web2.npy", "<f8", "d", [7, 8])
npy("fine.npy", "<f8", "d", [7, 0.1])
rows = [{"lang": i % 3, "meta": {"quality": i / 2}, "name": "n"} for i in range(6)]
open("rows.jsonl", "w").write("".join(json.dumps(row) + "\n" for row in rows))
open("null.jsonl", "w").write('{"lang": 1}\n\n{"lang": null}\n')
open("large.jsonl", "w").write('{"lang": 0.5}\n{"lang": 9007199254740993}\n')
PYTHON
cat >c.yaml <<'YAML'
sources:
- {name: web, path: "web*.bin", format: raw, dtype: u16, eos: 7}
- {name: code, path: code.bin, format: raw, dtype: u16, eos: 7}
index: m.rpi
seq_len: 4
batch_size: 1
YAML

# Mistakes of the command line, and an index that is not there.
refuses 'm.rpi|ringpack index -c' "$ringpack" annotate -c c.yaml --source web --column a=score.npy
"$ringpack" index -q -c c.yaml >/dev/null
refuses 'expected -c CONFIG' "$ringpack" annotate --column a=score.npy
refuses 'expected --column NAME=FILE' annotate --source web
refuses 'NAME=FILE' annotate --source web --column score.npy
refuses 'config has 2 sources|--source NAME' annotate --column a=score.npy
refuses 'no source `wed`|did you mean `web`?' annotate --source wed --column a=score.npy
for name in 1a 'a b' and "$(printf 'a%.0s' {1..48})"; do
    refuses 'a letter or `_`' annotate --source web --column "$name=score.npy"
done
for name in length shard document fraction; do
    refuses "each corpus has length" annotate --source web --column $name=score.npy
done
refuses 'given twice' annotate --source web --column a=score.npy --column a=score.npy

# Files that cannot be columns. None of these changes the index.
before=$(md5sum <m.rpi)
refuses 'few.npy|expected 6 rows|found 5' annotate --source web --column a=few.npy
refuses 'nan.npy|row 5|found NaN' annotate --source web --column a=nan.npy
refuses 'text.npy|a dtype of|<U1' annotate --source web --column a=text.npy
refuses 'null.jsonl:3|a number in `lang`|null' annotate --source web --column lang=null.jsonl
refuses 'rows.jsonl:1|a number in `name`|a text' annotate --source web --column a=rows.jsonl:name
refuses 'rows.jsonl:1|`a`|nothing' annotate --source web --column a=rows.jsonl
refuses 'large.jsonl|row 1|no type holds' annotate --source web --column lang=large.jsonl
refuses 'gone.npy' annotate --source web --column a=gone.npy
refuses 'c.yaml|.parquet' annotate --source web --column a=c.yaml
refuses 'few.npy' annotate --source web --column b=score.npy --column a=few.npy
equals "$before" "$(md5sum <m.rpi)"
[ ! -e m.rpi.work ] || fail 'a work folder is left'

# Each form; several columns of a command.
annotate --source web --column score=score.npy --column lang=rows.jsonl \
    --column quality=rows.jsonl:meta.quality >seen
says seen 'column score: f32, 6 documents of source web'
annotate --source code --json --column score=stage.npy >seen
says seen '"i8"'
equals "score:f32:6 lang:i64:6 quality:f64:6
score:i8:3" "$(columns)"
"$ringpack" inspect m.rpi >seen
says seen 'score: f32, 6 of 6 documents'
refuses 'already|--replace' annotate --source web --column score=score.npy
annotate --source web --replace --column score=rows.jsonl:lang >/dev/null
equals "lang:i64:6 quality:f64:6 score:i64:6
score:i8:3" "$(columns)"
annotate --source web --replace --column score=score.npy >/dev/null
"$ringpack" inspect --scan m.rpi >/dev/null

# Parquet and Arrow, if their library is there.
if "$python" -c 'import pyarrow' 2>/dev/null; then
    export RINGPACK_PYTHON=$python
    "$python" - <<'PYTHON'
import pyarrow
from pyarrow import feather, parquet
table = pyarrow.table({"a": pyarrow.array([3, 1, 2], "uint16"), "null": [1.0, None, 2.0],
                       "text": ["a", "b", "c"], "flag": [True, False, True]})
parquet.write_table(table.slice(0, 2), "part-0.parquet", row_group_size=1)
parquet.write_table(table.slice(2), "part-1.parquet")
feather.write_feather(table, "table.arrow")
PYTHON
    annotate --source code --column a='part-*.parquet' --column flag=table.arrow >seen
    says seen 'column a: u16, 3 documents'
    says seen 'column flag: u8, 3 documents'
    refuses 'part-0.parquet|row 1|null' annotate --source code --column n='part-*.parquet:null'
    refuses 'table.arrow|expected numbers|string' annotate --source code --column text=table.arrow
    refuses 'table.arrow|expected a column `b`|flag' annotate --source code --column b=table.arrow
    printf 'PAR1' >bad.parquet
    refuses 'bad.parquet|cannot be read' annotate --source code --column b=bad.parquet
fi

# Shards that are added have no column; a file for only these, of the type that it has.
cp code.bin web2.bin && truncate -s 12 web2.bin
"$ringpack" index -q -c c.yaml >seen
says seen appended
"$ringpack" inspect m.rpi >seen
says seen 'score: f32, 6 of 8 documents'
refuses 'expected 2 rows|do not have it yet|found 6' annotate --source web --column score=score.npy
refuses 'fine.npy|f32 for the documents|f64' annotate --source web --column score=fine.npy
annotate --source web --column score=web2.npy >/dev/null
"$ringpack" inspect m.rpi >seen
says seen 'score: f32, 8 of 8 documents'
says seen 'lang: i64, 6 of 8 documents'
"$ringpack" index -q -c c.yaml >seen
says seen unchanged
"$ringpack" inspect --scan m.rpi >/dev/null

# A shard that comes before others makes another order: the index is rewritten, and says so.
cp m.rpi kept.rpi && cp code.bin web00.bin
"$ringpack" index -q -c c.yaml >seen 2>&1
says seen 'rewritten'
says seen 'its columns are gone'
equals $'\n' "$(columns)"$'\n'
rm web00.bin && mv kept.rpi m.rpi

# One writer at a time; after a kill in the middle the index is as it was, and the command works.
before=$(md5sum <m.rpi)
touch slow.parquet
cat >slow <<'SH' # a worker that never comes to the end
#!/bin/sh
while printf '\5\0\0\0\0\0\0\0' && touch reading; do sleep 0.05; done
SH
chmod +x slow
export RINGPACK_PYTHON=$PWD/slow
"$ringpack" annotate -q -c c.yaml --source code --column slow=slow.parquet >seen 2>&1 &
writer=$!
wait_for [ -e reading ]
refuses 'm.rpi.work|another' annotate --source code --column b=stage.npy
kill -9 "$writer"
wait "$writer" 2>/dev/null || true
equals "$before" "$(md5sum <m.rpi)"
printf '{"slow": %d}\n' 1 2 3 >slow.jsonl
annotate --source code --column slow=slow.jsonl >/dev/null
columns | grep -q slow:i64:3 || fail "no column: $(columns)"
[ ! -e m.rpi.work ] || fail 'a work folder is left'
"$ringpack" plan -c c.yaml --rows 3 >/dev/null # a start reads the index with its columns
