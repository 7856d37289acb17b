#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The command line of every verb: one form of help, and one form of each mistake.
source "${0%/*}/kit.sh"

verbs=$("$ringpack" help | sed -n 's/^  \([a-z]*\) .*/\1/p')
[ "$(wc -w <<<"$verbs")" -ge 20 ] || fail "expected 20 verbs or more, found: $verbs"

# What is wrong is written to `wrong`, a line each.
wrong() { echo "$verb: $*" >>wrong; }

# helps PROGRAM WORDS...: on stdout alone, within a screen, and the same as `help`
helps() {
    local status=0
    "$@" >shown 2>complaint || status=$?
    [ "$status" = 0 ] || wrong "$2 $3: status $status"
    [ ! -s complaint ] || wrong "$2 $3: printed to stderr: $(head -1 complaint)"
    cmp -s shown help || wrong "$2 $3: another text than that of --help"
}

# mistaken PROGRAM PATTERN WORDS...: status 2, and on stderr a message and the next command
mistaken() {
    local program=$1 pattern=$2 status=0 lines
    shift 2
    timeout 60 "$program" "$verb" "$@" >shown 2>complaint || status=$?
    [ "$status" = 2 ] || wrong "$*: status $status"
    [ ! -s shown ] || wrong "$*: printed to stdout: $(head -1 shown)"
    mapfile -t lines <complaint
    # shellcheck disable=SC2053 # a pattern
    [[ ${#lines[@]} = 2 && ${lines[0]} == "ringpack: error RP_E_USAGE: $verb: "$pattern &&
        ${lines[1]} == "  next: \`ringpack help $verb\` lists its options" ]] ||
        wrong "$*: found $(tr '\n' '|' <complaint)"
}

walk() {
    local program=$1 option
    rm -f wrong
    for verb in $verbs; do
        "$program" "$verb" --help >help 2>/dev/null || wrong "--help: status $?"
        helps "$program" "$verb" --help
        helps "$program" "$verb" -h
        helps "$program" help "$verb"
        helps "$program" "$verb" word -h
        [ "$(wc -l <help)" -le 40 ] || wrong "--help: more than a screen of 40 lines"
        [ "$(wc -L <help)" -le 80 ] || wrong "--help: lines of more than 80 columns"
        [[ $(head -1 help) == "Usage: ringpack $verb [OPTION...]"* ]] || wrong "--help: no usage"
        grep -q '^  -h, --help  ' help || wrong "--help: no line for -h"
        ! grep -q -e '^  --seq-len' -e '^  --batch-size' help || wrong "--help: lists the keys"

        mistaken "$program" "unrecognized option '--no-such-option'" --no-such-option
        mistaken "$program" "unrecognized option '-Z'" -Z
        mistaken "$program" "option '--help' takes no value, found \`x\`" --help=x
        option=$(grep -oE '^  (-., )?--[a-z-]+=[^ ]+' help | grep -oE -m1 -e '--[a-z].*' || :)
        [ -z "$option" ] ||
            mistaken "$program" "option '${option%%=*}' needs a value: ${option//[/\\[}" \
                "${option%%=*}"
        words=$(sed -nE 's/^(Usage:|  or: ) ringpack [a-z]+ \[OPTION...\] ?//p' help)
        if [[ $words != *...* ]]; then # it takes a limited number
            mistaken "$program" '`x?` is one word too many' x1 x2 x3 x4 x5
        fi
        if [[ -n $words && $words != '['* ]]; then
            mistaken "$program" 'expected *'
        fi
    done
    [ ! -e wrong ]
}
walk "$ringpack" || fail "$(cat wrong)"

# ---- controls: a program with one verb that differs is found
breaks() { # WORDS SCRIPT: what is found, and the program that does it
    printf '#!/usr/bin/env bash\nreal=%q\n%s\n' "$ringpack" "$2" >broken
    chmod +x broken
    ! walk ./broken || fail "a program passes whose control is: $1"
    grep -q -e "$1" wrong || fail "expected to find: $1; found: $(cat wrong)"
}
all_verbs=$verbs verbs='plan stat'
breaks 'plan -h: printed to stderr' \
    '[ "$*" = "plan -h" ] && exec "$real" "$@" >&2; exec "$real" "$@"'
breaks 'stat -h: status 2' '[ "$*" = "stat -h" ] && exit 2; exec "$real" "$@"'
breaks 'more than a screen' '"$real" "$@"; code=$?; [ $code = 2 ] || seq 50; exit $code'
breaks 'lists the keys' '"$real" "$@" || exit; echo "  --seq-len=N  tokens of a row"'
breaks '-Z: found' '"$real" "$@" 2> >(sed s/next/try/ >&2)'
breaks 'x1 x2 x3 x4 x5: status 0' '[ "$2" = x1 ] && exit 0; exec "$real" "$@"'
verbs=$all_verbs

# ---- older names
"$ringpack" attach -h | head -1 | grep -q '^Usage: ringpack read ' || fail 'attach is not read'
status 2 '`audit --log` is now `ringpack journal`|no running engine' "$ringpack" audit --log ./none
status 2 'RP_E_USAGE: journal: give one of them' "$ringpack" audit a --log -c b

# ---- options in all their forms
status 2 'give one of them' "$ringpack" stat --run a -c b
refuses "plan: option '--s' is short for --state and for --" "$ringpack" plan --s 1
refuses 'cannot open|none.yaml' "$ringpack" plan -cnone.yaml --rows=1k
refuses 'checkpoint: expected an action and a path' "$ringpack" checkpoint list
refuses '--rows: expected a whole number such as 500 or 10k, found `-3`' "$ringpack" plan --rows -3
refuses "ps: unrecognized option '-Z'" "$ringpack" ps -aZ
echo 'verbs: one form'
