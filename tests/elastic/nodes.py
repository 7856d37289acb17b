# SPDX-License-Identifier: Apache-2.0
"""Two nodes on one machine: network namespaces joined by a cable, each with its own /dev/shm, host
name and run directory. They share the file system, as nodes of a cluster do, and know each other's
names.

A node is the tree of processes of one `Node.start`, which ends as a whole."""

import contextlib
import os
import shlex
import signal
import subprocess

from job_kit import Job

NETWORK = "10.77.0"
FURNISH = (
    "mount --make-rprivate / && mount -t tmpfs ringpack /dev/shm && mkdir -m 700 /dev/shm/run && "
    "echo '{hosts}' >/dev/shm/hosts && mount --bind /dev/shm/hosts /etc/hosts && "
    "hostname {name} && export XDG_RUNTIME_DIR=/dev/shm/run && "
)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def missing():
    """Why there can be no nodes here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    name = f"rp{os.getpid()}x"
    try:
        ip("netns", "add", name)
        try:
            node = Node(name, "")
            subprocess.run(node.shell("true"), check=True, capture_output=True)
        finally:
            ip("netns", "del", name)
    except FileNotFoundError:
        return "needs `ip`: apt-get install iproute2"
    except subprocess.CalledProcessError as failure:
        return f"namespaces are not allowed here: {failure.stderr}"
    return None


class Node:
    def __init__(self, name, address, hosts="127.0.0.1 localhost"):
        self.name, self.address, self.hosts = name, address, hosts

    def shell(self, script):
        """Words that run a script as this node, in a mount of its own."""
        enter = ["ip", "netns", "exec", self.name, "unshare", "--mount", "--uts", "bash", "-c"]
        return [*enter, FURNISH.format(name=self.name, hosts=self.hosts) + script]

    def command(self, words):
        return self.shell("exec " + shlex.join(map(str, words)))

    def start(self, words, log, **environment):
        return Job(self.command(words), log, env={**os.environ, **environment})

    def processes(self, word=""):
        """Those that live in its network, or of them those that have `word` as an argument."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.name], check=True, capture_output=True, text=True
        )
        found = []
        for pid in map(int, listed.stdout.split()):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
                if not word or word in file.read().split("\0"):
                    found.append(pid)
        return found

    def kill(self):
        """SIGKILL to all; stopped first, so that no process has a last word."""
        for sent in signal.SIGSTOP, signal.SIGKILL:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sent)

    def plug(self, state):
        """ "down" pulls the cable out, "up" puts it back."""
        ip("-n", self.name, "link", "set", "eth0", state)


@contextlib.contextmanager
def two_nodes():
    names = {f"{NETWORK}.{n}": f"rp{os.getpid()}{side}" for n, side in ((1, "a"), (2, "b"))}
    hosts = "\n".join(f"{address} {name}" for address, name in names.items())
    hosts = f"127.0.0.1 localhost\n{hosts}"
    nodes = [Node(name, address, hosts) for address, name in names.items()]
    try:
        for node in nodes:
            ip("netns", "add", node.name)
            ip("-n", node.name, "link", "set", "lo", "up")
        first, second = (node.name for node in nodes)
        cable = ["type", "veth", "peer", "name", "eth0", "netns", second]
        ip("link", "add", "eth0", "netns", first, *cable)
        for node in nodes:
            ip("-n", node.name, "address", "add", f"{node.address}/24", "dev", "eth0")
            node.plug("up")
        yield nodes
    finally:
        for node in nodes:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", node.name)
