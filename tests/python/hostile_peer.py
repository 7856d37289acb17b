# SPDX-License-Identifier: Apache-2.0
"""A peer that an engine must survive: hostile_peer.py words|messages FOLDER RUN RANK SEED COUNTS

words     attaches as RANK whenever that is free, writes garbage into its control page for some
          milliseconds, tries calls that the seals forbid, floods the doorbell, and is gone
messages  connections that speak garbage: half requests, lies, descriptors, questions without a
          reader of the answer, silence, hang-ups

It runs until it is killed. COUNTS is a file with the counts of its actions, in the order of
NAMES."""

import contextlib
import mmap
import os
import random
import re
import socket
import struct
import sys
import time
from pathlib import Path

NAMES = ("attached", "pages", "quarantined", "messages", "descriptors", "connections")
LAYOUT = Path(__file__).resolve().parents[2] / "engine" / "shm" / "layout.h"
ABI = int(re.search(r"RP_ABI_VERSION (\d+)", LAYOUT.read_text()).group(1))
MAGIC = 0x314B4C41544B5052
REQUEST = struct.Struct("<QII72sIIIIIIQQIIiI")
REPLY = struct.Struct("<QIIiIIIQQQQ")
ATTACH, STAT, CHECKPOINT, WELCOME = 1, 2, 3, 1  # STOP is everybody's right, and not used
ANY_ROW = 2**64 - 1
QUARANTINED_OFFSET = 4096 + 260


class Counts:
    """Numbers that outlive their process."""

    def __init__(self, path):
        with open(path, "a+b") as file:
            file.truncate(8 * len(NAMES))
            self.memory = mmap.mmap(file.fileno(), 8 * len(NAMES))

    def add(self, name, count=1):
        at = 8 * NAMES.index(name)
        (value,) = struct.unpack_from("<Q", self.memory, at)
        struct.pack_into("<Q", self.memory, at, value + count)

    def read(self):
        return dict(zip(NAMES, struct.unpack(f"<{len(NAMES)}Q", self.memory)))


class Peer:
    def __init__(self, folder, run, rank, seed, counts):
        self.path, self.run, self.rank = f"{folder}/{run}.sock", run.encode(), int(rank)
        self.random, self.counts = random.Random(seed), Counts(counts)
        self.silent = []

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(5)
        connection.connect(self.path)
        self.counts.add("connections")
        return connection

    def request(self, kind, rank, row=ANY_ROW, state_bytes=0, contract_bytes=0):
        step_row = self.random.choice([ANY_ROW, 0, self.random.getrandbits(60)])
        numbers = rank, 0, 0, 0, 0, 0, row, step_row, state_bytes, contract_bytes, os.getpid(), 0
        return REQUEST.pack(MAGIC, ABI, kind, self.run, *numbers)

    # ---- words -----------------------------------------------------------------------------------

    def attach(self):
        """Data and control page of the rank's ring, or None while somebody else has it."""
        connection = self.connect()
        row = self.random.choice([ANY_ROW, ANY_ROW, ANY_ROW, 0, self.random.getrandbits(60)])
        connection.send(self.request(ATTACH, self.rank, row))
        message, fds, _, _ = socket.recv_fds(connection, 1 << 20, 4)
        if len(message) >= REPLY.size and REPLY.unpack_from(message)[2] == WELCOME:
            self.counts.add("attached")
            return connection, fds
        for fd in fds:
            os.close(fd)
        connection.close()
        return None

    def break_seals(self, data, control):
        """Calls that the kernel must refuse: else the engine or another reader could be hurt."""
        forbidden = [
            lambda: os.ftruncate(control, 0),
            lambda: os.ftruncate(data, 4096),
            lambda: os.pwrite(data, b"garbage", 8192),
            lambda: mmap.mmap(data, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE),
        ]
        for attempt in forbidden:
            try:
                attempt()
            except OSError:
                continue
            os.abort()  # whoever counts on us sees that we died

    def scribble(self, connection, data, control):
        page = mmap.mmap(control, 4096)
        words = mmap.mmap(data, 8192, prot=mmap.PROT_READ)
        until = time.monotonic() + self.random.uniform(0, 0.03)
        pages = 0
        while time.monotonic() < until:
            (tail,) = struct.unpack_from("<Q", words, 4096)
            lie = self.random.choice([tail, tail + 1, 0, self.random.getrandbits(64)])
            struct.pack_into("<Q", page, 0, lie if self.random.random() < 0.3 else tail)
            if self.random.random() < 0.5:
                page[8:] = os.urandom(4088)
            if self.random.random() < 0.1:
                page[:] = os.urandom(4096)
            pages += 1
            with contextlib.suppress(BlockingIOError):
                connection.send(os.urandom(self.random.randrange(1, 100)), socket.MSG_DONTWAIT)
        self.counts.add("pages", pages)
        (quarantined,) = struct.unpack_from("<I", words, QUARANTINED_OFFSET)
        self.counts.add("quarantined", quarantined & 1)

    def write_words(self):
        found = self.attach()
        if found:
            connection, fds = found
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.break_seals(*fds)
                self.scribble(connection, *fds)
            for fd in fds:
                os.close(fd)
            connection.close()
        time.sleep(self.random.uniform(0, 0.06))

    # ---- messages --------------------------------------------------------------------------------

    def message(self):
        """Any bytes, more and more like a request."""
        noise = os.urandom(self.random.randrange(1, 300))
        far, near = self.random.getrandbits(62), self.random.randrange(500)
        kind = self.random.choice([ATTACH, STAT, CHECKPOINT, 0, 99])
        return self.random.choice(
            [
                noise,
                struct.pack("<Q", MAGIC) + noise,
                struct.pack("<QII", MAGIC, ABI, ATTACH) + os.urandom(REQUEST.size - 16),
                self.request(kind, self.random.getrandbits(32)),
                self.request(kind, 0)[: self.random.randrange(1, REQUEST.size)],
                self.request(ATTACH, 0, near),  # taken
                self.request(ATTACH, self.rank, far),
                self.request(ATTACH, self.rank, near, len(noise)) + noise,
                self.request(ATTACH, self.rank, near, 1000) + noise,
                self.request(ATTACH, self.rank, near, 0, len(noise)) + noise,
                self.request(ATTACH, self.rank, ANY_ROW, 0, 17) + b"seed=1\n\npad_id=0\n",
                self.request(STAT, 0),
                self.request(CHECKPOINT, 0),
            ]
        )

    def send_fds(self, connection):
        fds = [os.open("/dev/null", os.O_RDONLY), connection.fileno(), os.memfd_create("theirs")]
        count = self.random.randrange(1, 60)
        noise = [os.urandom(self.random.randrange(1, 300))]
        socket.send_fds(connection, noise, [self.random.choice(fds) for _ in range(count)])
        self.counts.add("descriptors", count)
        os.close(fds[0])
        os.close(fds[2])

    def write_messages(self):
        """Only a connection without a rank is silent: a trainer that hangs keeps its seat."""
        connection, is_trainer = self.connect(), False
        connection.settimeout(0.05)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            for _ in range(self.random.choice([0, 1, 1, 2, 10])):
                if self.random.random() < 0.3:
                    self.send_fds(connection)
                else:
                    message = self.message()
                    is_trainer |= message[12:16] == struct.pack("<I", ATTACH)
                    connection.send(message)
                self.counts.add("messages")
            if self.random.random() < 0.3:
                connection.recv(1 << 20)
        if self.random.random() < 0.3 and not is_trainer:
            self.silent.append(connection)
        else:
            connection.close()
        if len(self.silent) > 60:
            self.silent.pop(self.random.randrange(60)).close()
        time.sleep(self.random.uniform(0, 0.004))


def main():
    kind, *rest = sys.argv[1:]
    peer = Peer(*rest)
    while True:
        with contextlib.suppress(
            FileNotFoundError, ConnectionError, TimeoutError, BlockingIOError
        ):  # between two engines
            peer.write_words() if kind == "words" else peer.write_messages()


if __name__ == "__main__":
    main()
