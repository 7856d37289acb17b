#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program itself: its list of verbs, version, verbs that do not exist, and a mapped file that
# breaks.
source "${0%/*}/kit.sh"

status 2 'Usage: ringpack VERB' "$ringpack"
status 0 'Usage: ringpack VERB' "$ringpack" help
status 0 'Usage: ringpack VERB' "$ringpack" --help
[ "$("$ringpack" --version)" = "ringpack $(sed -n 's/^project(ringpack VERSION \([0-9.]*\).*/\1/p' \
    "$RP_SOURCE_DIR/CMakeLists.txt")" ] || fail "--version: $("$ringpack" --version)"
status 2 'there is no verb `chekpoint`; did you mean `checkpoint`?' "$ringpack" chekpoint
status 2 'there is no verb `xyzzy`' "$ringpack" help xyzzy
for words in help '--version' 'help serve' 'help index'; do # the help ends the program by itself
    status 2 'standard output: No space left on device|next: make room' \
        bash -c '"$0" $1 >/dev/full' "$ringpack" "$words"
done

# The scripts of tools/ have a help.
for tool in bench campaign check format manual setup; do
    status 0 "tools/$tool" "$RP_SOURCE_DIR/tools/$tool" --help
done

# An index is mapped; when it is cut short under the program, the next read of it is a SIGBUS.
"$python" - <<'PYTHON'
import array
documents = 100000
open("big.bin", "wb").write(bytes(2 * documents))
with open("big.idx", "wb") as index:
    index.write(b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([8]))
    index.write(documents.to_bytes(8, "little") + (documents + 1).to_bytes(8, "little"))
    index.write(array.array("i", [1] * documents).tobytes())
    index.write(array.array("q", range(0, 2 * documents, 2)).tobytes())
    index.write(array.array("q", range(documents + 1)).tobytes())
PYTHON
printf 'sources: [big.bin]\nseq_len: 64\nbatch_size: 1\nnum_epochs: endless\n' >c.yaml
"$ringpack" plan -c c.yaml --rows 1000000m >out 2>&1 &
plan=$!
wait_for has_worked "$plan" # it is planning
truncate -s 4096 big.idx
found=0
wait "$plan" || found=$?
[ "$found" = 2 ] || fail "with a truncated index: expected status 2, found $found: $(cat out)"
grep -q 'big.idx: was truncated while it was in use' out ||
    fail "with a truncated index: $(cat out)"
echo "the shell of the program: as expected"
