# SPDX-License-Identifier: Apache-2.0
"""Tokenise for `ringpack convert --tokenizer tokenizer.json`, over stdin and stdout.

    tokenizer_worker.py TOKENIZER_JSON EOS     a token id, the text of a token, or "" to look

At the start the child says   b"RPTK", u32 version 1, u32 vocabulary size, i64 eos (-1: not known)
then, for each batch:
    from the parent   u32 texts, then for each: u32 bytes, UTF-8
    from the child    u32 texts, then for each: u32 tokens, u32 ids

All little-endian. Each side reads a whole batch before it writes, so neither can block the other.
The end of stdin is the end. No token is added to a text: the parent appends EOS.
"""

import array
import signal
import struct
import sys

if not __package__:
    # Of a script, its own directory comes first on the path: its modules would hide others.
    sys.path.pop(0)

EXIT_NO_PACKAGE, EXIT_BAD_FILE, EXIT_BAD_EOS = 3, 4, 5
USUAL_EOS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "<|eos|>")


def find_eos(vocabulary, wanted):
    if wanted.isdigit():
        return int(wanted)
    if wanted:
        return vocabulary[wanted]
    known = [vocabulary[name] for name in USUAL_EOS if name in vocabulary]
    return known[0] if len(known) == 1 else -1


def read_exactly(stream, count):
    data = stream.read(count)
    if len(data) != count:
        raise SystemExit(0)  # the parent is gone; it has said why
    return data


def serve(tokenizer, source, sink):
    while head := source.read(4):
        (count,) = struct.unpack("<I", head)
        texts = []
        for _ in range(count):
            (length,) = struct.unpack("<I", read_exactly(source, 4))
            texts.append(read_exactly(source, length).decode("utf-8"))
        reply = [head]
        for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
            ids = array.array("I", encoding.ids)
            reply += [struct.pack("<I", len(ids)), ids.tobytes()]
        sink.write(b"".join(reply))
        sink.flush()


def main(path, wanted_eos):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it closes our stdin
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        print(error, file=sys.stderr)
        return EXIT_NO_PACKAGE
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the package raises bare Exceptions
        print(error, file=sys.stderr)
        return EXIT_BAD_FILE
    tokenizer.no_truncation()  # a corpus wants every token, whatever tokenizer.json says,
    tokenizer.no_padding()  # and no other
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    try:
        eos = find_eos(vocabulary, wanted_eos)
    except KeyError:
        return EXIT_BAD_EOS
    size = max(max(vocabulary.values(), default=-1), eos) + 1
    sys.stdout.buffer.write(b"RPTK" + struct.pack("<IIq", 1, size, eos))
    sys.stdout.buffer.flush()
    serve(tokenizer, sys.stdin.buffer, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
