#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack demo at toy size: identical, unless the engine is broken; nothing is left behind.
set -euo pipefail

ringpack=${RINGPACK:?path of the ringpack program}
broken=${RINGPACK_BROKEN:?path of the program that loses a fragment at resume}
python=${PYTHON:-python3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
mkdir tmp
export TMPDIR=$scratch/tmp

fail() { echo "FAILED: $*" >&2; cat said >&2 || true; exit 1; }
# status N WORDS COMMAND...: the exit status, and every word (separated by |) in what was said.
status() {
    local expected=$1 words=$2 found=0
    shift 2
    "$@" >said 2>&1 || found=$?
    [ "$found" = "$expected" ] || fail "expected status $expected, found $found: $*"
    local IFS='|'
    for word in $words; do
        grep -qF -e "$word" said || fail "\`$word\` is not there: $*"
    done
}
nothing_left() {
    [ -z "$(ls -A tmp)" ] || fail "$1 left $(ls tmp)"
    ! pgrep -f "$scratch/tmp/ringpack-trial" >/dev/null || fail "$1 left processes"
}

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
