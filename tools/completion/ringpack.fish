# SPDX-License-Identifier: Apache-2.0
# Completion for fish: install this file as completions/ringpack.fish. Verbs, options and the words
# that a key takes are asked of the program, so they are always its own.

function __ringpack_verbs
    ringpack help 2>/dev/null | string replace -rf '^  ([a-z]+) +(\S.*)' '$1\t$2'
end

function __ringpack_options
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    if string match -qr '^--[a-z-]+=' -- $word
        set -l option (string replace -r '=.*' '=' -- $word)
        set -l key (string trim -c '-=' -- $option | string replace -a - _)
        set -l type (ringpack config keys 2>/dev/null |
            awk -v key=$key '$1 == key { getline; gsub(/ \| /, "|"); print $1; exit }')
        if string match -q '*|*' -- $type
            printf "$option%s\n" (string split '|' -- $type)
        end
    else if test (count $words) -gt 1
        set -l help (ringpack help $words[2] 2>/dev/null)
        printf '%s\n' $help |
            string match -r '^ +(?:-[a-zA-Z], )?--[a-z-]+=?' | string match -r -- '--[a-z-]+=?'
        if string match -q '*--KEY=VALUE*' -- $help
            ringpack config keys 2>/dev/null |
                awk '/^KEYS OF/ { exit } /^  [a-z]/ { gsub("_", "-", $1); print "--" $1 "=" }'
        end
    end
end

complete -c ringpack -n __fish_use_subcommand -f -a '(__ringpack_verbs)'
complete -c ringpack -n '__fish_seen_subcommand_from help' -f -a '(__ringpack_verbs)'
complete -c ringpack -n 'string match -q -- "-*" (commandline -ct)' -f -a '(__ringpack_options)'
