# SPDX-License-Identifier: Apache-2.0
"""Tokenise text and read encoded files for `ringpack convert`, over stdin and stdout.

    worker.py TOKENIZER EOS BOS THREADS SPECIAL BAD
        TOKENIZER   the path of a tokenizer.json, or "bytes"
        EOS, BOS    a token id, the text of a token, or "" (of EOS: look for a usual one)
        THREADS     that the tokenizer may use; 0: as many as it likes
        SPECIAL     the name of a special token in a text becomes "text" or "tokens"
        BAD         treatment of a bad row: "refuse" or "skip"
    worker.py --decompress zstd
        stdin to stdout: exit status 3 without the package, 4 if the archive is damaged
    worker.py --lists FORM PATH COLUMN TYPE
        for `ringpack column`: lists of values to stdout, which is a file (lists.py)
    worker.py --decode TOKENIZER
        for `ringpack explain`: u32 count, u32 ids -> u32 bytes, UTF-8. It begins with the text
        RPDW, or with a text that says why it cannot

At the start the worker says   b"RPCW", u32 version 5, u64 vocabulary size, i64 eos, i64 bos
(-1: not known), and zeros up to 68 bytes; or it refuses. Then the parent sends requests, and the
worker answers in frames:

    u32 1, u32 texts, then for each: u32 bytes, UTF-8     -> one frame of kind 1
    u32 2, u32 bytes, JSON {path, form, column, ...}      -> frames of kind 1 or 2, then one of 3
    u32 3, u32 lines, u32 bytes, path,                    -> one frame of kind 1: prompt and
        then for each: u32 number, u32 bytes, JSON           completion of each line as texts
    u32 4 and 5: the same                                 -> one frame of kind 5: prompt and
                                                             completion as messages; a chat
    u32 6 and 7: the same                                 -> one frame of kind 1, or 5: chosen and
                                                             rejected as texts; as messages

    u32 kind       1 documents made of text, 2 documents that were ids, 3 the end of a file,
                   4 refused, 5 documents with all ends that they want
    u32 documents  refused: which error, see REFUSALS
    u32 width      bytes of an id, 2 or 4; refused: bytes of the message
    u32 share      of the file that is read, in 2^-32; refused: bytes of the hint
    u32 dropped    texts that were smaller than min_bytes
    u32 special    names of special tokens in texts
    u32 runs       of trained tokens, in all documents
    u32 bad        rows that were skipped
    32 bytes       name of their mask, zeros after it; without one there is no mask
    u32 sides      side columns: all that the request names, or none
    then           u32 tokens of each document, and all ids; with a mask u32 runs of each
                   document, and u32 begin, u32 end of each run; for each side column 8 bytes
                   dtype, u32 values of an entry, u32 whether there is an entry for each id or for
                   each document, and these entries; refused: message, hint

All little-endian. Each side reads the message to it before it writes, so neither can block the
other. The end of stdin is the end. No token is put around a document: the parent does that.
"""

import json
import os
import signal
import struct
import sys
import types

if not __package__:
    # The directory of a script may come first on the path: its modules would hide others. They are
    # a package instead, without the effects of `import ringpack`.
    _package = types.ModuleType("ringpack_convert")
    _package.__path__ = [os.path.dirname(os.path.realpath(__file__))]
    sys.path[:1] = [place for place in sys.path[:1] if place not in _package.__path__]
    sys.modules[_package.__name__] = _package
    __package__ = _package.__name__

TEXTS, IDS, END, REFUSED, CHATS = 1, 2, 3, 4, 5
ASK_TEXTS, ASK_FILE, ASK_PAIRS, ASK_CHAT_PAIRS, ASK_CHATS = 1, 2, 3, 4, 5
ASK_PREFERENCES, ASK_CHAT_PREFERENCES = 6, 7
REFUSALS = ("format", "resource", "usage", "corrupt", "vocabulary")
FRAME = struct.Struct("<IIIIIIII32sI")


def refusal_frame(name, message, hint):
    message, hint = (text.encode()[:4000] for text in (message, hint))
    head = FRAME.pack(REFUSED, REFUSALS.index(name), len(message), len(hint), 0, 0, 0, 0, b"", 0)
    return head + message + hint


def refused_values(message, hint):
    """A refusal of --values (tools/ringpack/annotate/read_worker.c)."""
    texts = [text.replace("\0", " ").encode()[:2000] + b"\0" for text in (message, hint)]
    return struct.pack("<II", 254, sum(map(len, texts))) + b"".join(texts)


try:
    import numpy

    from .chats import Chats, are_chats, are_pairs, lines_of, made_of_chats, pairs_of_texts
    from .columns import Messages, Refused, Table, choose, need
    from .lists import answer_lists, pack_sides
    from .preferences import PAIR_MASK, are_preferences, lines_of_pairs, made_of_pairs
    from .readers import READERS, decompress
    from .special import Specials, need_support, special_tokens, with_special
except ImportError as error:
    print(f"{sys.executable}: {error}", file=sys.stderr)
    if sys.argv[1:2] in (["--decompress"], ["--decode"], ["--lists"]):
        sys.exit(1)  # their output has no place for a refusal
    hint = "`pip install numpy`, or set RINGPACK_PYTHON to a Python that has it"
    refusal = refusal_frame("resource", f"{sys.executable}: {error}", hint)
    if sys.argv[1:2] == ["--values"]:
        refusal = refused_values(f"{sys.executable}: {error}", hint)
    sys.stdout.buffer.write(refusal)
    sys.exit(0)

TEXTS_AT_A_TIME = 4096
BAD_NAMED_MAX = 3  # a worker's, on stderr
USUAL_EOS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "<|eos|>")


class Bytes:
    """Text as its UTF-8 bytes."""

    vocab_size, eos, bos = 257, -1, -1

    def encode(self, texts, counts=True):
        return [numpy.frombuffer(text.encode(), "u1").astype("u2") for text in texts]

    def take_found(self):
        return 0

    def chats(self):
        raise Refused("usage", "messages: expected a tokenizer with a chat template, found `bytes`",
                      "give --tokenizer FOLDER, of a model that chats")


class Tokenizer:
    """Text as the tokens of a tokenizer.json."""

    def __init__(self, path, eos, bos, as_tokens=False):
        self.path, self.known_chats, self.found, self.as_tokens = path, None, 0, as_tokens
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
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=True)
        self.eos = find_token(path, "--eos", vocabulary, eos)
        self.bos = find_token(path, "--bos", vocabulary, bos)
        if not eos:
            known = [vocabulary[name] for name in USUAL_EOS if name in vocabulary]
            self.eos = known[0] if len(known) == 1 else -1
        self.vocab_size = max(*vocabulary.values(), self.eos, self.bos, -1) + 1
        self.prepare([name for name, number in vocabulary.items()
                      if number in (self.eos, self.bos)])

    def prepare(self, ends):
        """A corpus wants every token, whatever tokenizer.json says, and no other: none of those
        that end and begin documents, unless a text is to have them."""
        if not self.as_tokens:
            need_support(self.tokenizer)
            self.tokenizer = with_special(self.tokenizer, ends)
            self.tokenizer.encode_special_tokens = True
        self.specials = Specials(special_tokens(self.tokenizer, *ends))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def encode(self, texts, counts=True):
        encoded = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        self.found += self.specials.count(texts) if counts else 0
        return [numpy.array(one.ids, "u4") for one in encoded]

    def take_found(self):
        """Names of special tokens in texts and chats since the last call."""
        found, self.found = self.found, 0
        if self.known_chats:
            found, self.known_chats.found = found + self.known_chats.found, 0
        return found

    def chats(self):
        self.known_chats = self.known_chats or Chats(self.path, self.as_tokens)
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


def pack(kind, lengths, ids, runs=None, share=1.0, dropped=0, special=0, bad=0, sides=()):
    """A frame of documents, as narrow as their ids allow. Two texts of bytes for each side."""
    narrow = ids.dtype == numpy.dtype("u2") or not len(ids) or ids.max() < 65536
    ids = numpy.ascontiguousarray(ids, "<u2" if narrow else "<u4")
    lengths = numpy.ascontiguousarray(lengths, "<u4")
    mask, counts, pairs = runs or ("", (), ())
    if len(mask.encode()) > 31:
        raise Refused("usage", f"mask `{mask}`: its name has more than 31 bytes", "rename it")
    counts, pairs = (numpy.ascontiguousarray(part, "<u4") for part in (counts, pairs))
    head = FRAME.pack(kind, len(lengths), ids.itemsize, int(share * 0xFFFFFFFF), dropped,
                      special, pairs.size // 2, bad, mask.encode(), len(sides) // 2)
    return b"".join((head, lengths.data, ids.data, counts.data, pairs.tobytes(), *sides))


def pack_texts(tokenizer, texts, share=1.0, dropped=0, sides_of=None):
    documents = tokenizer.encode(texts)
    ids = numpy.concatenate(documents) if documents else numpy.empty(0, "u2")
    lengths = [len(document) for document in documents]
    return pack(TEXTS, lengths, ids, None, share, dropped, tokenizer.take_found(),
                sides=sides_of(lengths) if sides_of else ())


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


def pack_chats(kind, mask, made, sides_of=None, **counts):
    """A frame of documents that are (ids, runs)."""
    ids = numpy.concatenate([own for own, _ in made]) if made else numpy.empty(0, "u2")
    pairs = [run for _, runs in made for run in runs]
    runs = mask, [len(runs) for _, runs in made], numpy.array(pairs, "u4").reshape(-1, 2)
    lengths = [len(own) for own, _ in made]
    return pack(kind, lengths, ids, runs if mask else None,
                sides=sides_of(lengths) if sides_of else (), **counts)


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


def named_bad(refused, named=[0]):  # noqa: B006
    """Say of the first rows that are skipped why."""
    named[0] += 1
    if named[0] <= BAD_NAMED_MAX:
        print(f"ringpack: skipped: {refused}", file=sys.stderr)


def good_chats(make, lines, skips):
    """(documents, number of skipped lines)."""
    made, bad = [], 0
    for line in lines:
        try:
            made += made_of_chats(make, [line])
        except Refused as refused:
            if not skips or not refused.of_row:
                raise
            named_bad(refused)
            bad += 1
    return made, bad


def answer_chats(tokenizer, kind, lines, skips, has_mask=True, **progress):
    mask = "assistant_masks" if kind == ASK_CHATS else "completion_mask"
    answer, bad = CHATS, 0
    if kind in (ASK_PREFERENCES, ASK_CHAT_PREFERENCES):
        mask, has_mask, are_texts = PAIR_MASK, True, kind == ASK_PREFERENCES
        answer = TEXTS if are_texts else CHATS
        made, bad = made_of_pairs(tokenizer, are_texts, lines, named_bad if skips else None)
    elif kind == ASK_PAIRS:
        answer, made = TEXTS, list(pairs_of_texts(tokenizer, [line for _, line in lines]))
    else:
        chats = tokenizer.chats()
        made, bad = good_chats(chats.chat if kind == ASK_CHATS else chats.pair, lines, skips)
    return pack_chats(answer, mask if has_mask else "", made, bad=bad,
                      special=tokenizer.take_found(), **progress)


def need_tokenizer(request, name):
    if not request["has_tokenizer"]:
        raise Refused("usage", f"{request['path']}: `{name}` is text, and no tokenizer is given",
                      "give --tokenizer FOLDER of the model, which ends documents without "
                      "--no-append-eos, or --tokenizer bytes")


def chat_frames(request, tokenizer, table, name, share):
    """Frames of the rows of a table."""
    are_pairs_of_two = are_preferences(request, table, name)
    found = list(lines_of_pairs(table) if are_pairs_of_two else lines_of(table, name))
    lines = [(place, line) for _, place, line in found]
    rows = numpy.repeat(numpy.array([row for row, *_ in found], "i8"), 1 + are_pairs_of_two)
    skips = request["skip_bad"] and not table.sides  # with sides, good_frames finds bad rows
    of_text = not isinstance(table.columns[name], Messages)
    kind = ASK_CHAT_PAIRS if are_pairs(request, name) else ASK_CHATS
    if of_text:
        need_tokenizer(request, name)
        kind = ASK_PAIRS
    if are_pairs_of_two:
        kind = ASK_PREFERENCES if of_text else ASK_CHAT_PREFERENCES
    dropped = table.rows(name) - len(lines)
    for at in range(0, len(lines), TEXTS_AT_A_TIME):
        some = lines[at : at + TEXTS_AT_A_TIME]
        own = rows[at * (1 + are_pairs_of_two) :]
        yield answer_chats(
            tokenizer, kind, some, skips, request["mask"] != "none", share=share, dropped=dropped,
            sides_of=lambda lengths: pack_sides(table, lengths, own[: len(lengths)]))  # noqa: B023
        dropped = 0
    if dropped:
        yield pack(TEXTS, [], numpy.empty(0, "u2"), None, share, dropped)


def text_frames(request, tokenizer, table, texts, share):
    least = max(1, request["min_bytes"])
    for at in range(0, len(texts), TEXTS_AT_A_TIME):
        some = range(at, min(at + TEXTS_AT_A_TIME, len(texts)))
        kept = [row for row in some if len(texts[row].encode()) >= least]
        yield pack_texts(tokenizer, [texts[row] for row in kept], share, len(some) - len(kept),
                         lambda lengths: pack_sides(table, lengths, kept))  # noqa: B023


def table_frames(request, tokenizer, table, name, share):
    column = table.column(name)
    if are_chats(request, table, name) or are_preferences(request, table, name):
        yield from chat_frames(request, tokenizer, table, name, share)
    elif isinstance(column, list):
        need_tokenizer(request, name)
        yield from text_frames(request, tokenizer, table, column, share)
    else:
        documents, whole, kept = table.ids(name)
        yield pack(IDS, *documents, share, sides=pack_sides(table, whole, kept=kept))


def good_frames(request, tokenizer, table, name, share):
    """The frames of a table without its bad rows, which are found by halves."""
    try:
        yield from list(table_frames(request, tokenizer, table, name, share))
        return
    except Refused as refused:
        if not request["skip_bad"] or not refused.of_row:
            raise
        rows = table.rows(name)
        if rows <= 1:
            named_bad(refused)
            yield pack(TEXTS, [], numpy.empty(0, "u2"), None, share, bad=rows)
            return
    for part in (table.part(0, rows // 2), table.part(rows // 2, rows)):
        yield from good_frames(request, tokenizer, part, name, share)


def file_frames(request, tokenizer):
    """The documents of a file, and its end."""
    name, row = None, 0
    for share, columns in READERS[request["form"]](request):
        table = Table(request, columns, row + request.get("first_row", 0))
        name = name or choose(request, columns)
        if request["skip_bad"]:
            yield from good_frames(request, tokenizer, table, name, share)
        else:
            yield from table_frames(request, tokenizer, table, name, share)
        row += table.rows(name)
    yield FRAME.pack(END, 0, 0, 0, 0, 0, 0, 0, b"", 0)


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


def serve(tokenizer, source, sink, skips):
    while head := source.read(8):
        kind, count = struct.unpack("<II", head)
        if kind == ASK_TEXTS:
            frames = [pack_texts(tokenizer, read_texts(source, count))]
        elif kind != ASK_FILE:
            frames = [answer_chats(tokenizer, kind, read_lines(source, count), skips)]
        else:
            frames = answer_file(json.loads(read_exactly(source, count)), tokenizer)
        for frame in frames:
            sink.write(frame)
        sink.flush()


def decode(path):
    """Texts of token ids, special tokens among them."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer

    def answer(text):
        sink.write(struct.pack("<I", len(text)) + text)
        sink.flush()

    try:
        tokenizer = Tokenizer(path, "", "", as_tokens=True).tokenizer
    except Refused as refused:
        answer(str(refused).encode("utf-8", "replace"))
        return 0
    answer(b"RPDW")
    while head := source.read(4):
        (count,) = struct.unpack("<I", head)
        ids = struct.unpack(f"<{count}I", read_exactly(source, 4 * count))
        answer(tokenizer.decode(list(ids), skip_special_tokens=False).encode("utf-8", "replace"))
    return 0


COLUMN_TYPES = {"u1": 1, "u2": 2, "u4": 3, "u8": 4, "i8": 5, "f4": 6, "f8": 7, "i1": 8, "i2": 9,
                "i4": 10, "f2": 6}  # engine/corpus/index/INDEX.md


def values(form, path, column):
    """The numbers of a column, as tools/ringpack/annotate/read_worker.c takes them."""
    sink = sys.stdout.buffer
    request = {"path": path, "form": form, "column": column, "mask": "none", "begin": 0, "end": 0,
               "of_numbers": 0}
    try:
        for _, columns in READERS[form](request):
            array = columns[column]
            kind = COLUMN_TYPES[array.dtype.kind + str(array.dtype.itemsize)]
            wide = array.astype({"u": "<u8", "i": "<i8", "f": "<f8"}[array.dtype.kind])
            for at in range(0, len(wide), 65536):
                piece = wide[at : at + 65536]
                sink.write(struct.pack("<II", kind, len(piece)) + piece.tobytes())
        sink.write(struct.pack("<II", 255, 0))
    except Refused as refused:
        sink.write(refused_values(str(refused), refused.hint))
    except BrokenPipeError:  # the parent has enough
        os._exit(0)
    except Exception as error:  # as answer_file
        what = str(error).strip().split("\n")[0][:500] or type(error).__name__
        sink.write(refused_values(f"{path}: `{form}`: cannot be read: {what}",
                                  "is it whole, and of this form?"))
    sink.flush()
    return 0


def main(name, eos, bos, threads, special, bad):
    if threads != "0":
        os.environ.setdefault("RAYON_NUM_THREADS", threads)
    sink = sys.stdout.buffer
    try:
        tokenizer = Bytes() if name == "bytes" else Tokenizer(name, eos, bos, special == "tokens")
        hello = struct.pack("<4sIQqq", b"RPCW", 5, tokenizer.vocab_size, tokenizer.eos,
                            tokenizer.bos)
        sink.write(hello.ljust(FRAME.size, b"\0"))
        sink.flush()
        serve(tokenizer, sys.stdin.buffer, sink, bad == "skip")
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
    if sys.argv[1] == "--values":
        sys.exit(values(*sys.argv[2:5]))
    if sys.argv[1] == "--lists":
        sys.exit(answer_lists(READERS, sys.stdout.buffer, *sys.argv[2:6]))
    sys.exit(main(*sys.argv[1:7]))
