# SPDX-License-Identifier: Apache-2.0
"""Archives of text: lines of JSON as `ringpack convert` reads them, plain, in gzip or in zstd."""

import gzip
import io

from .columns import Refused, need

PIECE_BYTES = 1 << 20


def zstd_pieces(source):
    """The text of an archive of any number of frames. Refused: "resource" without the package,
    "corrupt" if the archive is damaged or ends early."""
    zstandard = need("zstandard")
    context = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame = None
    try:
        while piece := source.read(PIECE_BYTES):
            while piece:
                frame = frame or context.decompressobj()
                yield frame.decompress(piece)
                piece = frame.unused_data
                frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise Refused("corrupt", str(error)) from None
    if frame:
        raise Refused("corrupt", "the archive ends early")


class Pieces(io.RawIOBase):
    """A file of pieces of bytes; a piece may be empty."""

    def __init__(self, pieces):
        self.pieces, self.rest = pieces, b""

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self.rest:
            piece = next(self.pieces, None)
            if piece is None:
                return 0
            self.rest = memoryview(piece)
        some = min(len(buffer), len(self.rest))
        buffer[:some], self.rest = self.rest[:some], self.rest[some:]
        return some


def lines_of(path):
    """The lines of a file. gzip is known by its first bytes, zstd by the name, as in
    tools/ringpack/convert/decompress.c."""
    with open(path, "rb") as file:
        if path.endswith(".zst"):
            try:
                yield from io.BufferedReader(Pieces(zstd_pieces(file)), PIECE_BYTES)
            except Refused as refused:
                if refused.name == "resource":
                    raise
                raise Refused(
                    "corrupt",
                    f"{path}: expected a zstd archive, found one that is damaged or ends early",
                    "make the archive again; `zstd -t` tests one") from None
        elif file.peek(2)[:2] == b"\x1f\x8b":
            yield from gzip.open(file)
        else:
            yield from file
