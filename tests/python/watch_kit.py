# SPDX-License-Identifier: Apache-2.0
"""False engines, and `ringpack metrics` to watch them."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request

from hostile_peer import ABI, MAGIC, REPLY

TEXT = 3


class FakeEngine:
    """A socket under the name of a run. `answer`: the text of each answer, bytes of a whole
    message, or None for silence. `asked` counts connections."""

    def __init__(self, folder, run, answer):
        self.answer, self.asked, self.kept = answer, 0, []
        self.path = f"{folder}/{run}.sock"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            self.asked += 1
            self.kept.append(connection)
            if self.answer is not None:
                self.reply(connection)

    def reply(self, connection):
        message = self.answer
        if isinstance(message, str):
            head = REPLY.pack(MAGIC, ABI, TEXT, 0, len(message.encode()), *(0,) * 5, 1)
            message = head + message.encode()
        connection.recv(1 << 16)
        connection.send(message)
        connection.close()

    def kill(self):
        """As SIGKILL does: the socket's file is left over."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.kept:
            connection.close()

    def stop(self):
        os.unlink(self.path)
        self.kill()


def stat_of(run, **more):
    """The answer of an engine."""
    known = {"run": run, "pid": 1, "rows": 7, "tokens": 700, "fill": 0.5, "ended": False}
    waits = {"waits": 3, "wait_seconds": 0.5, "wait_histogram": [0, 1, 0, 2]}
    rank = {"rank": 0, "replica": 0, "attached": True, "tail": 5, "release": 3, "slots": 8, **waits}
    return json.dumps({**known, "ranks": [rank], "sources": [], **more})


class Metrics:
    """`ringpack metrics` on a free port."""

    def __init__(self, program, folder, *runs):
        command = [program, "metrics", "--listen", "127.0.0.1:0", "--run-dir", str(folder), *runs]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said = self.process.stderr.readline()
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", self.said)[1])

    def ask(self, path, **headers):
        """Status, text, type. Connections live for ten seconds at most: then there is another."""
        for _ in range(5):
            try:
                return self.ask_once(path, headers)
            except ConnectionResetError:
                pass
            except urllib.error.URLError as error:
                if not isinstance(error.reason, ConnectionError):
                    raise
        raise AssertionError(f"{path} is not answered")

    def ask_once(self, path, headers):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=600) as reply:
                return reply.status, reply.read().decode(), reply.headers["Content-Type"]
        except urllib.error.HTTPError as reply:
            return reply.status, reply.read().decode(), reply.headers["Content-Type"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(600) == 0, self.process.stderr.read()
        self.process.stderr.close()
