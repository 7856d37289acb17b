#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The second run of a test that fails: which tests get one, its report, and the failures that it
# cannot hide.
source "${0%/*}/kit.sh"
twice=$RP_SOURCE_DIR/tests/ctest_twice

# tests LINE...: a build folder with these tests. `once` fails the first time only.
tests() {
    rm -rf built
    mkdir built
    printf '%s\n' 'add_test(good "true")' "$@" >built/CTestTestfile.cmake
}
once() {
    local say="echo '${2:-too late}'"
    echo "add_test($1 \"sh\" \"-c\" \"test -e $1 || { touch $1; $say; exit 1; }\")"
}
label() { echo "set_tests_properties($1 PROPERTIES LABELS \"unit;certain\")"; }
always='add_test(always "false")'
passed_again() { equals "$1" "$(xargs <built/passed_again)"; }

tests
status 0 '100% tests passed' "$twice" built -j 2
passed_again ''

tests "$(once late)" "$(once later)"
status 0 'run again, each alone: late later' "$twice" built -j 2
passed_again 'late later'
status 0 '100% tests passed' "$twice" built -j 2
passed_again ''

tests "$(once late)" "$always"
status 8 'run again, each alone: always late' "$twice" built
passed_again late

# A failure that is certain is not run again, and neither are the failures next to it.
tests "$(once rows)" "$(label rows)" "$(once late)"
status 1 'not run again: rows' "$twice" built
passed_again ''
tests "$(once late)" "$(once good_rows)" "$(label good)"
status 0 'run again' "$twice" built

# Nor is a failure that reports different bytes, whatever its label.
for words in 'E   AssertionError: other tokens in row 3' 'E   AssertionError: row 7 came twice' \
    'ringpack: assertion failed: a == b' 'WARNING: ThreadSanitizer: data race' \
    'x.c:1: runtime error: index 9' 'difference at offset 4 0x01 0x02' \
    'verify: DIFFERENT' 'resume: DIFFERENT' '{\"identical\": false}' \
    'E   assert 12345678901234567890 == 54321098765432109876' \
    'E       assert array([1]) == POISON'; do
    tests "$(once "words" "$words")"
    status 1 'not run again: what was said above' "$twice" built
    rm built/words
done
for words in 'E   AssertionError: it did not happen in time' 'row 7 came' \
    'E   assert 12 == 13' '>   assert (view == POISON).all()'; do
    tests "$(once "words" "$words")"
    status 0 'run again, each alone: words' "$twice" built
done

status 0 ': test_plan|: test_engine_replicas|: sim|: model|: python_batch|: python_steps' \
    ctest --test-dir "$RP_BUILD_DIR" -N -L '^certain$'
