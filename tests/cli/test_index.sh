#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack index and inspect: their reports, also on damage and change.
source "${0%/*}/kit.sh"

as_raw=(--format raw --dtype u16 --eos 7)
says() { grep -qF -e "$2" "$1" || fail "\`$2\` is not in: $(cat "$1")"; }
field() { "$python" -c "import json, sys; print(json.load(open('$1'))[0]['$2'])"; }

# 5000 documents of 100 tokens, each ended by token 7
"$python" - <<'PYTHON'
import array
tokens = array.array("H", ([100 + i % 300 for i in range(99)] + [7]) * 5000)
open("raw.bin", "wb").write(tokens.tobytes())
PYTHON

refuses 'raw.bin|unknown format|--dtype' "$ringpack" inspect raw.bin
refuses 'raw.bin|no eos' "$ringpack" index --format raw --dtype u16 raw.bin
"$ringpack" inspect "${as_raw[@]}" raw.bin >seen
says seen 'raw, u16 tokens, eos 7'
says seen '5,000'
says seen 'not known; --scan'
says seen 'sampled'
"$ringpack" inspect --scan --json "${as_raw[@]}" raw.bin >scanned
[ "$(field scanned token_max)" = 198 ] || fail 'the largest token'
[ "$(field scanned fingerprint_full)" = None ] || fail 'a full fingerprint without a sidecar'
"$ringpack" index "${as_raw[@]}" raw.bin >seen
says seen '5,000 documents'
says seen 'GB/s'
"$ringpack" inspect raw.bin >seen # no declaration is needed any more
says seen 'its sidecar says'
says seen 'full (sidecar)'
"$ringpack" inspect --json raw.bin >indexed
sampled=$(field scanned fingerprint_sampled)
[ "$(field indexed fingerprint_sampled)" = "$sampled" ] || fail 'another sample'
[ "$(field indexed token_max)" = 198 ] || fail 'the largest token of the sidecar'
refuses 'eos|expected 7|found 8' "$ringpack" inspect --format raw --dtype u16 --eos 8 raw.bin

# A changed token is noticed and located; index takes it as it is now.
printf '\001' | dd of=raw.bin bs=1 seek=1 conv=notrunc status=none
refuses 'RP_E_CHANGED|raw.bin|at byte 0|ringpack index raw.bin' "$ringpack" inspect raw.bin
"$ringpack" index -q raw.bin >/dev/null
"$ringpack" inspect --json raw.bin >again
full=$(field indexed fingerprint_full)
[ "$(field again fingerprint_full)" != "$full" ] || fail 'the same fingerprint'

# A directory of sidecars, and equal base names.
mkdir a b
cp raw.bin a/ && cp raw.bin b/
"$ringpack" index -q --index-dir sidecars "${as_raw[@]}" --json a/raw.bin b/raw.bin >both
"$python" -c "import json; a, b = json.load(open('both')); assert b['gb_per_second'] > 0"
[ "$(ls sidecars | wc -l)" = 2 ] || fail 'two sidecars'
[ ! -e a/raw.bin.rpi ] || fail 'a sidecar beside the shard'
"$ringpack" inspect --index-dir sidecars a/raw.bin >seen
says seen 'full (sidecar)'

# A config: the shards of all its sources, each as its source declares it, and no corpus index.
mkdir of_config && cp raw.bin of_config/one.bin && head -c 20000 raw.bin >of_config/two.bin
cat >of_config/c.yaml <<'YAML'
sources:
- {name: one, path: one.bin, format: raw, dtype: u16, eos: 7}
- {name: two, path: two.bin, format: raw, dtype: u16, eos: 8}
seq_len: 64
batch_size: 1
YAML
refuses 'missing.bin' "$ringpack" index -c of_config/c.yaml --sources missing.bin
"$ringpack" index -q -c of_config/c.yaml --json >both
"$python" -c "import json; assert [x['documents'] for x in json.load(open('both'))] == [5000, 1]"
equals 'c.yaml one.bin one.bin.rpi two.bin two.bin.rpi' "$(ls of_config | xargs)"
"$ringpack" inspect --json of_config/one.bin >one
[ "$(field one fingerprint_full)" = "$(field again fingerprint_full)" ] || fail 'as by path'
"$ringpack" index -q -c of_config/c.yaml -o of_config/m.rpi >/dev/null
[ -s of_config/m.rpi ] || fail 'no corpus index by -o'

# A directory stands for the token files in it.
mkdir empty
"$ringpack" inspect "${as_raw[@]}" a b >seen
says seen a/raw.bin
says seen b/raw.bin
refuses 'empty|holds no' "$ringpack" index empty

# One bad path among good ones: the good ones are done, the status is 2.
mkfifo fifo
refuses 'a FIFO' timeout 600 "$ringpack" inspect raw.bin fifo
refuses 'a FIFO' timeout 600 "$ringpack" index fifo raw.bin
refuses 'No such file' "$ringpack" inspect gone
refuses '--dtype|u17' "$ringpack" inspect --dtype u17 raw.bin
refuses 'at least one path' "$ringpack" index
truncate -s 1000 raw.bin.rpi
refuses 'raw.bin.rpi|damaged|ringpack index' "$ringpack" inspect raw.bin

# Unpublished sidecars are open files: they fit into a low limit of descriptors.
mkdir few
for i in {1..60}; do ln raw.bin "few/$i.bin"; done
(ulimit -n 40 && "$ringpack" index -q "${as_raw[@]}" few) || fail 'few open files'
equals 60 "$(find few -name '*.rpi' | wc -l)"
rm -r few

# A path need not be UTF-8; JSON must be.
odd=$'odd\xff.bin'
cp raw.bin "$odd"
"$ringpack" inspect --json "${as_raw[@]}" "$odd" >odd.json
equals 'odd?.bin' "$(field odd.json path)"
"$ringpack" index -q "${as_raw[@]}" "$odd" >/dev/null
"$ringpack" plan --sources "$odd" --seq-len 64 --batch-size 1 --rows 10 --json >odd.json
equals "['odd?']" "$("$python" -c "import json
print([part['source'] for part in json.load(open('odd.json'))['mixture']])")"

# An index of 12 GB, nearly all of it a hole, takes many seconds to hash. SIGTERM ends the command
# meanwhile, and leaves no half file.
mkdir large && printf '\0\0' >large/x.bin
"$python" - <<'PYTHON'
import struct
count = 600_000_000
with open("large/x.idx", "wb") as index:
    index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1))
    lengths = index.tell()
    index.seek(lengths + 4 * (count - 1))
    index.write(struct.pack("<I", 1))
    index.seek(lengths + 12 * count + 8 * count)
    index.write(struct.pack("<Q", count))
PYTHON
"$ringpack" index large/x.bin >said 2>&1 &
ticks_of() { echo $(($(cut -d ' ' -f 14-15 "/proc/$1/stat" | tr ' ' +))); }
has_hashed() { [ "$(ticks_of "$1")" -gt 20 ]; } # for 0.2 seconds
wait_for has_hashed $!
kill -TERM $!
found=0
wait $! || found=$?
[ "$found" = 2 ] || fail "expected status 2, found $found: $(cat said)"
says said interrupted
equals 'x.bin x.idx' "$(ls large | xargs)"
rm -r large
echo 'all of index and inspect holds'
