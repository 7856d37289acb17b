# SPDX-License-Identifier: Apache-2.0
"""Tokenise text and read encoded files for `ringpack convert`, over stdin and stdout.

    worker.py TOKENIZER EOS BOS THREADS
        TOKENIZER   the path of a tokenizer.json, or "bytes"
        EOS, BOS    a token id, the text of a token, or "" (of EOS: look for a usual one)
        THREADS     that the tokenizer may use; 0: as many as it likes
    worker.py --decompress zstd
        stdin to stdout: exit status 3 without the package, 4 if the archive is damaged
    worker.py --decode TOKENIZER
        for `ringpack explain`: u32 count, u32 ids -> u32 bytes, UTF-8. It begins with the text
        RPDW, or with a text that says why it cannot

At the start the worker says   b"RPCW", u32 version 3, u64 vocabulary size, i64 eos, i64 bos
(-1: not known), and zeros up to 64 bytes; or it refuses. Then the parent asks, and the worker
answers in frames:

    u32 1, u32 texts, then for each: u32 bytes, UTF-8     -> one frame of kind 1
    u32 2, u32 bytes, JSON {path, form, column, ...}      -> frames of kind 1 or 2, then one of 3
    u32 3, u32 lines, u32 bytes, path,                    -> one frame of kind 1: prompt and
        then for each: u32 number, u32 bytes, JSON           completion of each line as texts
    u32 4 and 5: the same                                 -> one frame of kind 5: prompt and
                                                             completion as messages; a chat

    u32 kind       1 documents made of text, 2 documents that were ids, 3 the end of a file,
                   4 refused, 5 documents with all ends that they want
    u32 documents  refused: which error, see REFUSALS
    u32 width      bytes of an id, 2 or 4; refused: bytes of the message
    u32 share      of the file that is read, in 2^-32; refused: bytes of the hint
    u64 dropped    texts that were smaller than min_bytes
    u64 runs       of trained tokens, in all documents
    32 bytes       name of their mask, zeros after it; without one there is no mask
    then           u32 tokens of each document, and all ids; where there is a mask u32 runs of each
                   document, and u32 begin, u32 end of each run; refused: message, hint

All little-endian. Each side reads what it was sent before it writes, so neither can block the
other. The end of stdin is the end. No token is put around a document: the parent does that.
"""

import json
import os
import signal
import struct
import sys
import types

if not __package__:
    # Of a script, its own directory comes first on the path: its modules would hide others. They
    # are a package instead, without what `import ringpack` does.
    _package = types.ModuleType("ringpack_convert")
    _package.__path__ = [sys.path.pop(0)]
    sys.modules[_package.__name__] = _package
    __package__ = _package.__name__

TEXTS, IDS, END, REFUSED, CHATS = 1, 2, 3, 4, 5
ASK_TEXTS, ASK_FILE, ASK_PAIRS, ASK_CHAT_PAIRS, ASK_CHATS = 1, 2, 3, 4, 5
REFUSALS = ("format", "resource", "usage", "corrupt", "vocabulary")
FRAME = struct.Struct("<IIIIQQ32s")


def refusal_frame(name, message, hint):
    message, hint = (text.encode()[:4000] for text in (message, hint))
    head = FRAME.pack(REFUSED, REFUSALS.index(name), len(message), len(hint), 0, 0, b"")
    return head + message + hint


try:
    import numpy

    from .chats import Chats, are_chats, lines_of, made_of_chats, pairs_of_texts
    from .columns import Refused, Table, choose, need
    from .readers import READERS
except ImportError as error:
    print(f"{sys.executable}: {error}", file=sys.stderr)
    if sys.argv[1:2] in (["--decompress"], ["--decode"]):  # their output has no place for a refusal
        sys.exit(1)
    hint = "`pip install numpy`, or set RINGPACK_PYTHON to a Python that has it"
    sys.stdout.buffer.write(refusal_frame("resource", f"{sys.executable}: {error}", hint))
    sys.exit(0)

TEXTS_AT_A_TIME = 4096
EXIT_NO_PACKAGE, EXIT_CORRUPT = 3, 4
USUAL_EOS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "<|eos|>")


class Bytes:
    """Text as its UTF-8 bytes."""

    vocab_size, eos, bos = 257, -1, -1

    def encode(self, texts):
        return [numpy.frombuffer(text.encode(), "u1").astype("u2") for text in texts]

    def chats(self):
        raise Refused("usage", "messages: expected a tokenizer with a chat template, found `bytes`",
                      "give --tokenizer FOLDER/tokenizer.json, of a model that chats")


class Tokenizer:
    """Text as the tokens of a tokenizer.json."""

    def __init__(self, path, eos, bos):
        self.path, self.known_chats = path, None
        tokenizers = need("tokenizers")
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(path)
        except Exception as error:  # the package raises bare Exceptions
            print(error, file=sys.stderr)
            raise Refused(
                "format",
                f"{path}: expected a tokenizer.json, found something that `tokenizers` cannot read",
                "give the tokenizer.json of a Hugging Face tokenizer, or `bytes`",
            ) from None
        self.tokenizer.no_truncation()  # a corpus wants every token, whatever tokenizer.json says,
        self.tokenizer.no_padding()  # and no other
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=True)
        self.eos = find_token(path, "--eos", vocabulary, eos)
        self.bos = find_token(path, "--bos", vocabulary, bos)
        if not eos:
            known = [vocabulary[name] for name in USUAL_EOS if name in vocabulary]
            self.eos = known[0] if len(known) == 1 else -1
        self.vocab_size = max(*vocabulary.values(), self.eos, self.bos, -1) + 1

    def encode(self, texts):
        encoded = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        return [numpy.array(one.ids, "u4") for one in encoded]

    def chats(self):
        self.known_chats = self.known_chats or Chats(self.path)
        return self.known_chats


def find_token(path, option, vocabulary, wanted):
    if not wanted or wanted.isdigit():
        return int(wanted) if wanted else -1
    if wanted in vocabulary:
        return vocabulary[wanted]
    raise Refused(
        "usage",
        f"{path}: its vocabulary does not hold the token given to {option}",
        f"give the id, or a token of this tokenizer, to {option}",
    )


def pack(kind, lengths, ids, runs=None, share=1.0, dropped=0):
    """A frame of documents, as narrow as their ids allow."""
    narrow = ids.dtype == numpy.dtype("u2") or not len(ids) or ids.max() < 65536
    ids = numpy.ascontiguousarray(ids, "<u2" if narrow else "<u4")
    lengths = numpy.ascontiguousarray(lengths, "<u4")
    mask, counts, pairs = runs or ("", (), ())
    if len(mask.encode()) > 31:
        raise Refused("usage", f"mask `{mask}`: its name has more than 31 bytes", "rename it")
    counts, pairs = (numpy.ascontiguousarray(part, "<u4") for part in (counts, pairs))
    head = FRAME.pack(kind, len(lengths), ids.itemsize, int(share * 0xFFFFFFFF), dropped,
                      pairs.size // 2, mask.encode())
    return b"".join((head, lengths.data, ids.data, counts.data, pairs.tobytes()))


def pack_texts(tokenizer, texts, share=1.0, dropped=0):
    documents = tokenizer.encode(texts)
    ids = numpy.concatenate(documents) if documents else numpy.empty(0, "u2")
    return pack(TEXTS, [len(document) for document in documents], ids, None, share, dropped)


def read_exactly(stream, count):
    data = stream.read(count)
    if len(data) != count:
        raise SystemExit(0)  # the parent is gone; it has said why
    return data


def read_texts(source, count):
    texts = []
    for _ in range(count):
        (length,) = struct.unpack("<I", read_exactly(source, 4))
        texts.append(read_exactly(source, length).decode("utf-8"))
    return texts


def pack_chats(kind, mask, made, share=1.0, dropped=0):
    """A frame of documents that are (ids, runs)."""
    made = list(made)
    ids = numpy.concatenate([own for own, _ in made]) if made else numpy.empty(0, "u2")
    pairs = [run for _, runs in made for run in runs]
    runs = mask, [len(runs) for _, runs in made], numpy.array(pairs, "u4").reshape(-1, 2)
    return pack(kind, [len(own) for own, _ in made], ids, runs if mask else None, share, dropped)


def read_lines(source, count):
    """(place, line) of each."""
    path = read_texts(source, 1)[0]
    lines = []
    for _ in range(count):
        number, length = struct.unpack("<II", read_exactly(source, 8))
        line = read_exactly(source, length)
        try:
            lines.append((f"{path}:{number}", json.loads(line)))
        except (RecursionError, ValueError) as error:
            raise Refused("format", f"{path}:{number}: expected JSON that Python reads: {error}",
                          "mend it, or take it out") from None
    return lines


def answer_chats(tokenizer, kind, lines, has_mask=True, **progress):
    mask = "assistant_masks" if kind == ASK_CHATS else "completion_mask"
    if kind == ASK_PAIRS:
        made = pairs_of_texts(tokenizer.encode, [line for _, line in lines])
        return pack_chats(TEXTS, mask if has_mask else "", made, **progress)
    chats = tokenizer.chats()
    made = made_of_chats(chats.chat if kind == ASK_CHATS else chats.pair, lines)
    return pack_chats(CHATS, mask if has_mask else "", made, **progress)


def chat_frames(request, tokenizer, lines, share):
    """Frames of the rows of a table; pairs of two empty texts are none."""
    for at in range(0, len(lines), TEXTS_AT_A_TIME):
        some = lines[at : at + TEXTS_AT_A_TIME]
        prompt = some[0][1].get("prompt")
        kind = ASK_CHATS if "messages" in some[0][1] else ASK_CHAT_PAIRS
        kind = ASK_PAIRS if isinstance(prompt, str) else kind
        kept = [(place, line) for place, line in some
                if kind != ASK_PAIRS or line["prompt"] or line["completion"]]
        yield answer_chats(tokenizer, kind, kept, request["mask"] != "none", share=share,
                           dropped=len(some) - len(kept))


def text_frames(request, tokenizer, texts, share):
    least = max(1, request["min_bytes"])
    for at in range(0, len(texts), TEXTS_AT_A_TIME):
        some = texts[at : at + TEXTS_AT_A_TIME]
        kept = [text for text in some if len(text.encode()) >= least]
        yield pack_texts(tokenizer, kept, share, len(some) - len(kept))


def file_frames(request, tokenizer):
    """The documents of a file, and its end."""
    name, row = None, 0
    for share, columns in READERS[request["form"]](request):
        table = Table(request, columns, row)
        name = name or choose(request, columns)
        column = table.column(name)
        if are_chats(request, table, name):
            yield from chat_frames(request, tokenizer, list(lines_of(table, name)), share)
            row += len(column)
        elif isinstance(column, list):
            yield from text_frames(request, tokenizer, column, share)
            row += len(column)
        else:
            yield pack(IDS, *table.ids(name), share)
            row += len(column[0])
    yield FRAME.pack(END, 0, 0, 0, 0, 0, b"")


def answer_file(request, tokenizer):
    """The same, with a refusal for whatever a library does not like."""
    try:
        yield from file_frames(request, tokenizer)
    except (Refused, BrokenPipeError):
        raise
    except MemoryError:
        raise Refused("resource", f"{request['path']}: not enough memory to read it",
                      "give fewer --workers") from None
    except Exception as error:
        what = str(error).strip().split("\n")[0][:500] or type(error).__name__
        raise Refused("corrupt", f"{request['path']}: `{request['form']}`: cannot be read: {what}",
                      "is it whole, and of this form? --as names another") from None


def serve(tokenizer, source, sink):
    while head := source.read(8):
        kind, count = struct.unpack("<II", head)
        if kind == ASK_TEXTS:
            frames = [pack_texts(tokenizer, read_texts(source, count))]
        elif kind != ASK_FILE:
            frames = [answer_chats(tokenizer, kind, read_lines(source, count))]
        else:
            frames = answer_file(json.loads(read_exactly(source, count)), tokenizer)
        for frame in frames:
            sink.write(frame)
        sink.flush()


def decompress():
    try:
        zstandard = need("zstandard")
    except Refused:
        return EXIT_NO_PACKAGE
    context = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame = None
    try:
        while piece := sys.stdin.buffer.read(1 << 20):
            while piece:
                frame = frame or context.decompressobj()
                sys.stdout.buffer.write(frame.decompress(piece))
                piece = frame.unused_data
                frame = None if frame.eof else frame
        sys.stdout.buffer.flush()
    except zstandard.ZstdError as error:
        print(error, file=sys.stderr)
        return EXIT_CORRUPT
    except BrokenPipeError:  # the parent has enough
        os._exit(0)
    return EXIT_CORRUPT if frame else 0


def decode(path):
    """Texts of token ids, special tokens among them."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer

    def answer(text):
        sink.write(struct.pack("<I", len(text)) + text)
        sink.flush()

    try:
        tokenizer = Tokenizer(path, "", "").tokenizer
    except Refused as refused:
        answer(str(refused).encode("utf-8", "replace"))
        return 0
    answer(b"RPDW")
    while head := source.read(4):
        (count,) = struct.unpack("<I", head)
        ids = struct.unpack(f"<{count}I", read_exactly(source, 4 * count))
        answer(tokenizer.decode(list(ids), skip_special_tokens=False).encode("utf-8", "replace"))
    return 0


def main(name, eos, bos, threads):
    if threads != "0":
        os.environ.setdefault("RAYON_NUM_THREADS", threads)
    sink = sys.stdout.buffer
    try:
        tokenizer = Bytes() if name == "bytes" else Tokenizer(name, eos, bos)
        hello = struct.pack("<4sIQqq", b"RPCW", 3, tokenizer.vocab_size, tokenizer.eos,
                            tokenizer.bos)
        sink.write(hello.ljust(FRAME.size, b"\0"))
        sink.flush()
        serve(tokenizer, sys.stdin.buffer, sink)
    except Refused as refused:
        sink.write(refusal_frame(refused.name, str(refused), refused.hint))
        sink.flush()
    except BrokenPipeError:  # the parent has enough
        os._exit(0)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it closes our stdin
    if sys.argv[1] == "--decompress":
        sys.exit(decompress())
    if sys.argv[1] == "--decode":
        sys.exit(decode(sys.argv[2]))
    sys.exit(main(*sys.argv[1:5]))
