#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack demo at toy size: identical, unless the engine is broken; no file or process is left
# behind.
source "${0%/*}/kit.sh"
broken=${RINGPACK_BROKEN:?path of the program that loses a fragment at resume}

for i in $(seq 200); do
    head -c $((i * i * 7919 % 9000 + 1)) /dev/zero | tr '\0' "\\$(printf %o $((97 + i % 26)))"
    echo
done >text
"$ringpack" convert -q --split-bytes 3000 -o toy text

status 0 'killed |resumed |state token|tok/s at four ranks|resume: identical' \
    "$ringpack" demo --corpus toy --seconds 1
[ "$(grep -c '^continuous .* rows$\|^resumed .* rows$' said)" = 2 ] || fail 'not two digests'
nothing_left demo
if "$python" -c 'import numpy' 2>/dev/null; then
    status 0 '(2 C, 2 Python)|(1 C, 1 Python)|resume: identical' \
        "$ringpack" demo --corpus toy --seconds 1 --python "$python"
fi

# --- an engine that loses a fragment when it resumes
status 1 'resume: DIFFERENT' "$broken" demo --corpus toy --seconds 1
nothing_left 'the demo of a broken engine'

# --- trouble
status 2 'missing: cannot open' "$ringpack" demo --corpus missing
status 2 'a Python trainer ended by itself' \
    "$ringpack" demo --corpus toy --seconds 1 --python /bin/false
status 2 '--seconds' "$ringpack" demo --seconds 0
nothing_left 'a demo in trouble'
echo 'demo: fine'
