# SPDX-License-Identifier: Apache-2.0
# Completion for bash: source this file, or install it as bash-completion/completions/ringpack.
# Verbs, options and the words that a key takes are asked of the program, so they are always its own.

_ringpack() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]}
    local words='' key=''
    COMPREPLY=()
    # bash takes --key=value for three words.
    if [ "$word" = = ]; then
        key=$before word=
    elif [ "$before" = = ]; then
        key=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if [ "$COMP_CWORD" = 1 ] || { [ "$COMP_CWORD" = 2 ] && [ "$before" = help ]; }; then
        words="$("$program" help 2>/dev/null | sed -nE 's/^  ([a-z]+) +[^ ].*/\1/p') help"
    elif [[ $key == --* ]]; then
        key=${key#--}
        words=$("$program" config keys 2>/dev/null |
            awk -v key="${key//-/_}" '$1 == key { getline; gsub(/ \| /, "|"); print $1; exit }')
        [[ $words == *\|* ]] && words=${words//|/ } || words=
    elif [[ $word == -* ]]; then
        words=$("$program" help "${COMP_WORDS[1]}" 2>/dev/null)
        [[ $words == *--KEY=VALUE* ]] && key=$("$program" config keys 2>/dev/null |
            awk '/^KEYS OF/ { exit } /^  [a-z]/ { gsub("_", "-", $1); print "--" $1 "=" }')
        words=$(grep -oE '^ +(-[a-zA-Z], )?--[a-z-]+(=|\[=)?' <<<"$words" |
            grep -oE -e '--[a-z-]+=?')" $key"
    fi
    [ -n "$words" ] || return 0 # files, by -o default
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    [[ ${COMPREPLY[0]-} == --*= ]] && compopt -o nospace
    return 0
}
complete -o default -F _ringpack ringpack
