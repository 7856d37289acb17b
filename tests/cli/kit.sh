# SPDX-License-Identifier: Apache-2.0
# kit.sh — shared by the tests of the program: a scratch folder to work in, and checks of a
# command's output. Sourced first.
set -euo pipefail
ringpack=${RINGPACK:?path of the ringpack program}
python=${PYTHON:-python3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export XDG_STATE_HOME=$scratch/.state # engines leave their run records here, and not at home

fail() { echo "FAILED: $*" >&2; exit 1; }
equals() { [ "$1" = "$2" ] || fail "expected: ${1:0:200}"$'\n'"found:    ${2:0:200}"; }
# status N WORDS COMMAND...: the exit status, and every word (separated by |) in the output
status() {
    local expected=$1 words=$2 found=0
    shift 2
    "$@" >said 2>&1 || found=$?
    [ "$found" = "$expected" ] || fail "expected status $expected, found $found: $*: $(cat said)"
    local IFS='|'
    for word in $words; do
        grep -qF -e "$word" said || fail "\`$word\` is not in what $* said: $(cat said)"
    done
}
refuses() { status 2 "$@"; }
# wait_for COMMAND...: until it is true; a working command takes less than ten minutes
wait_for() {
    for _ in $(seq 60000); do
        "$@" && return
        sleep 0.01
    done
    fail "it did not happen: $*"
}
# has_worked PID: for 0.3 seconds on a processor, and so is past its start, however long that took
has_worked() { [ "$(cut -d ' ' -f 14 "/proc/$1/stat")" -gt 30 ]; }

# Jobs (verify, demo, bench) live in a folder of TMPDIR.
mkdir tmp
export TMPDIR=$scratch/tmp
job_serves() { grep -qs 'serving run' tmp/ringpack-job-*/log; }
nothing_left() {
    [ -z "$(ls -A tmp)" ] || fail "$1 left $(ls tmp)"
    ! pgrep -f "$scratch/tmp/ringpack-job" >/dev/null || fail "$1 left processes"
}
# A shell that is not interactive starts commands with & so that they ignore SIGINT, and ringpack
# keeps ignoring signals that were ignored at its start. A command after this can be interrupted.
as_in_a_terminal=(env --default-signal=INT)
