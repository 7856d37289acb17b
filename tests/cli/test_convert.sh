#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ringpack convert: its output and the order in it, and no file after a failure.
source "${0%/*}/kit.sh"

convert() { "$ringpack" convert "$@"; }
tree() { find . ! -name said | sort; }
# refuses WORDS COMMAND...: and no file is written
refuses() {
    local before
    before=$(tree)
    status 2 "$@"
    [ "$before" = "$(tree)" ] || fail "something was left behind: $*"
}

# tokens FILE TYPE: all of them on one line; field PREFIX NAME: of inspect --json
tokens() { od -An -v -t "$2" "$1" | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'; }
field() {
    "$ringpack" inspect --json "$1" |
        "$python" -c "import json, sys; print(json.load(sys.stdin)[0]['$2'])"
}

# --- a directory: bytewise order, links not followed, files without text skipped and counted
mkdir -p tree/b tree/Z
printf 'two' >tree/b/x.txt
printf 'one' >tree/Z/y.md
printf 'a\0b' >tree/binary
printf '\xff\xfe' >tree/latin
printf '' >tree/empty
printf 'zip' | gzip -n >tree/b/w.txt.gz
ln -s ../tree/b/x.txt tree/link
mkfifo tree/fifo
convert -o out tree >summary
equals '111 110 101 256 122 105 112 256 116 119 111 256' "$(tokens out.bin u2)"
grep -q '12 tokens (u16) in 3 documents from 3 files' summary || fail "$(cat summary)"
grep -q '1 binary, 1 not UTF-8, 1 too small, 0 unreadable' summary || fail "$(cat summary)"
[ "$(field out fingerprint_full)" != None ] || fail 'no sidecar'
equals 256 "$(field out token_max)"
sha256sum out.bin out.idx >first
refuses 'out.bin|exists|--force' convert -o out tree
for prefix in '' tree/; do
    refuses "ends in a name, found \`$prefix\`" convert -o "$prefix" tree
done
convert -q --force -o out tree/
sha256sum -c --quiet first || fail 'the same input gave another output'

# --- selection
convert -q -o glob --glob '*.md' --glob 'b/*.txt' tree
equals '111 110 101 256 116 119 111 256' "$(tokens glob.bin u2)"
convert -q -o bare --no-append-eos tree/b/x.txt tree/Z/y.md
equals '116 119 111 111 110 101' "$(tokens bare.bin u2)"
convert -q -o few --max-tokens 5 tree
equals 2 "$(field few documents)"
refuses 'no document|1 binary|4 too small' convert -o x --min-bytes 4 --glob 'b*' --glob '?*' tree/

# --- long text: documents end at line ends, characters stay whole, and no byte is lost
for i in $(seq 200); do printf 'line %s of the text, with an é in it\n' "$i"; done >long.txt
convert -q --no-append-eos --split-bytes 500 -o long long.txt
equals "$(tokens long.txt u1)" "$(tokens long.bin u2)"
[ "$(field long documents)" -ge 12 ] || fail 'the text was not cut'
[ "$(field long length_max)" -le 560 ] || fail 'a document is too long'
printf 'é%.0s' $(seq 100) >noline.txt
convert -q --no-append-eos --split-bytes 25 -o noline noline.txt
equals 24 "$(field noline length_max)"

# --- JSONL
printf '{"text": "hi"}\n\n{"text": "", "id": 1}\n{"text": "\\u00e9"}' >a.jsonl
convert -q -o j a.jsonl
equals '104 105 256 195 169 256' "$(tokens j.bin u2)"
printf '{"tokens": [1, 2]}\n{"input_ids": [70000, 9]}\n' | gzip >t.jsonl.gz
convert -q -o t --eos 9 --vocab-size 100k t.jsonl.gz
equals '1 2 9 70000 9' "$(tokens t.bin d4)" # EOS is not doubled
equals i32 "$(field t dtype)"
convert -q -o edge --vocab-size 65499 --no-append-eos tree/b/x.txt
equals u16 "$(field edge dtype)"
convert -q -o edge2 --vocab-size 65500 --no-append-eos tree/b/x.txt
equals i32 "$(field edge2 dtype)"
refuses 't.jsonl.gz:1|--eos' convert -o x --vocab-size 100k t.jsonl.gz
refuses 'RP_E_VOCABULARY|t.jsonl.gz:2|70000|--vocab-size' convert -o x --eos 9 t.jsonl.gz
for line in '{"text": 5}' '{"tokens": [1, -1]}' '{"tokens": [1.5]}' '{"tokens": ["1"]}' \
    '{"tokens": 3}' '{"tokens": [99999999999]}' '{"other": 1}' '[1]' '{"text": "x"' 'text' \
    '"text"'; do
    printf '{"text": "fine"}\n%s\n' "$line" >bad.jsonl
    refuses 'bad.jsonl:2|same command' convert -o x --eos 9 bad.jsonl
done

# --- .json is JSON Lines, compressed or not, and text only on request
mkdir lines values
printf '{"text": "hi"}\n{"text": "yo"}\n' | tee lines/a.json | gzip -n >lines/b.json.gz
convert -q -o lines-out lines
equals '104 105 256 121 111 256 104 105 256 121 111 256' "$(tokens lines-out.bin u2)"
printf '{\n  "text": "hi"\n}\n' | tee values/a.json | gzip -n >values/a.json.gz
for input in values values/a.json values/a.json.gz; do
    refuses 'RP_E_FORMAT|values/a.json|:1: expected a JSON object on one line|--as text' \
        convert -o x "$input"
done
convert -q -o values-out --as text values
equals "$(tokens values/a.json u1) 256 $(tokens values/a.json u1) 256" "$(tokens values-out.bin u2)"

# --- unreadable input
head -c 20000 /dev/urandom | base64 | gzip >whole.gz
head -c 9000 whole.gz >cut.gz
refuses 'cut.gz|byte 9000|cut short|gzip -t' convert -o x cut.gz
# archives that follow each other are one text, and zeros are padding; all else may be a damaged one
{ printf 'one' | gzip -n && printf 'two' | gzip -n && head -c 700 /dev/zero; } >several.gz
convert -q -o several several.gz
equals '111 110 101 116 119 111 256' "$(tokens several.bin u2)"
{ printf '{"text": "hi"}\n' | gzip -n && printf '{"text": "yo"}\n'; } >more.jsonl.gz
at=$(printf '{"text": "hi"}\n' | gzip -n | wc -c)
refuses "more.jsonl.gz|byte $at|something else|gzip -t" convert -o x more.jsonl.gz
cp more.jsonl.gz more.txt.gz
refuses "more.txt.gz|byte $at|something else|gzip -t" convert -o x more.txt.gz
refuses 'tree/binary|NUL' convert -o x tree/binary
refuses 'tree/latin|UTF-8' convert -o x tree/latin
refuses 'tree/fifo|a FIFO' timeout 600 "$ringpack" convert -o x tree/fifo
refuses 'nowhere' convert -o x nowhere
refuses 'no/such/dir' convert -o no/such/dir/x tree
refuses '-o PREFIX' convert tree
refuses 'input' convert -o x
refuses '--min-bytes' convert -o x --min-bytes many tree
refuses 'help convert' convert --nonsense -o x tree
# UTF-8 that is none: overlong, surrogate, beyond the last character, cut short.
for bytes in '\xc0\x80' '\xe0\x80\x80' '\xed\xa0\x80' '\xf4\x90\x80\x80' '\xf5\x80\x80\x80' \
    'abcdefgh\xc3' '\x80'; do
    printf "$bytes" >bad.txt
    refuses 'bad.txt|UTF-8' convert -o x bad.txt
done
printf '\xf4\x8f\xbf\xbf\xed\x9f\xbf\xe0\xa0\x80\xf0\x90\x80\x80\xc2\x80' >edge.txt
convert -q -o utf8 edge.txt

# --- a disk that is full (a limit on the size of a file stands in for it)
head -c 3000000 /dev/zero | tr '\0' x >big.txt
refuses 'x.bin|EFBIG' bash -c 'ulimit -f 1000; exec "$0" convert -o x big.txt' "$ringpack"

# --- a tokenizer.json, with a stand-in for the Python package
mkdir stub
cat >stub/tokenizers.py <<'PYTHON'
import os, time
class Encoding:
    def __init__(self, ids): self.ids = ids
class Tokenizer:
    @staticmethod
    def from_file(path):
        if "bad" in path: raise Exception("not a tokenizer")
        return Tokenizer()
    def no_truncation(self): self.whole = True
    def no_padding(self): pass
    encode_special_tokens = False
    def get_added_tokens_decoder(self): return {}
    def to_str(self): return "{}"
    def get_vocab(self, with_added_tokens): return {"<eos>": 2, "<other>": 70000}
    def encode_batch(self, texts, add_special_tokens):
        assert self.whole and self.encode_special_tokens and not add_special_tokens
        if "STUB_DIE" in os.environ: os._exit(9)
        parent = os.getppid()
        if "STUB_WAITS" in os.environ: open("begun", "w").write("x")
        while "STUB_WAITS" in os.environ and os.getppid() == parent: time.sleep(0.01)
        return [Encoding([1000 + len(word) for word in text.split()]) for text in texts]
PYTHON
export PYTHONPATH=$scratch/stub:${PYTHONPATH:-} PYTHONDONTWRITEBYTECODE=1
export RINGPACK_PYTHON=$python
echo '{}' >tokenizer.json
echo '{}' >bad.json
printf '{"text": "a bb ccc"}\n{"tokens": [5]}\n{"text": "dddd"}\n' >words.jsonl
convert -q --tokenizer tokenizer.json --eos '<eos>' -o words words.jsonl
equals '1001 1002 1003 2 5 2 1004 2' "$(tokens words.bin d4)" # in order, though texts are batched
convert -q --tokenizer tokenizer.json -o words2 tree/b/x.txt
equals '1003 2' "$(tokens words2.bin d4)" # <eos> was found
for i in $(seq 6000); do printf '{"text": "%.*s"}\n' $((i % 7 + 1)) wwwwwww; done >many.jsonl
convert -q --no-append-eos --tokenizer tokenizer.json -o many many.jsonl
expected=$(for i in $(seq 6000); do echo $((1001 + i % 7)); done | tr '\n' ' ')
equals "${expected% }" "$(tokens many.bin d4)"
refuses 'bad.json|tokenizer.json' convert --tokenizer bad.json -o x tree
refuses '--eos|vocabulary' convert --tokenizer tokenizer.json --eos '<nope>' -o x tree
refuses 'missing.json' convert --tokenizer missing.json -o x tree
with_tokenizer=("$ringpack" convert --tokenizer tokenizer.json -o x tree)
refuses 'RP_E_GONE|ended in the middle' env STUB_DIE=1 "${with_tokenizer[@]}"
refuses 'RINGPACK_PYTHON|no-python' env RINGPACK_PYTHON=no-python "${with_tokenizer[@]}"
mkdir none
echo 'raise ImportError("gone")' >none/tokenizers.py
refuses 'pip install tokenizers' env PYTHONPATH="$scratch/none:$PYTHONPATH" \
    "${with_tokenizer[@]}"

# --- Ctrl-C, and worse, in the middle of it
for signal in INT TERM KILL; do
    : >begun
    before=$(tree)
    STUB_WAITS=1 "${as_in_a_terminal[@]}" "${with_tokenizer[@]}" >/dev/null 2>said &
    pid=$!
    wait_for test -s begun
    kill -s "$signal" "$pid"
    found=0
    { wait "$pid" || found=$?; } 2>/dev/null
    if [ "$signal" != KILL ]; then
        equals 2 "$found"
        grep -q 'the output was not written' said || fail "$(cat said)"
    fi
    equals "$before" "$(tree)"
done
echo 'all of convert holds'
