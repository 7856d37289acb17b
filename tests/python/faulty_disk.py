# SPDX-License-Identifier: Apache-2.0
"""A disk that fails on command: a FUSE file system that passes everything on to a folder.

    faulty_disk.py FOLDER MOUNT_POINT FAULT_FILE

FAULT_FILE is read at every call: JSON of {"calls": [names], "errno": name, "delay": seconds,
"times": how often}; absent or empty, all is well. A call that is delayed while the fault is there
continues as soon as it is taken away, so a very long delay is a disk that hangs. "read back" is no
call: the first byte of the result of "read" is another one."""

import errno
import json
import os
import sys
import threading
import time

import mfusepy as fuse

STAT = ("st_mode", "st_size", "st_uid", "st_gid", "st_nlink", "st_ino")
TIMES = ("st_atime", "st_mtime", "st_ctime")
lock = threading.Lock()
spent = {}  # text of a fault -> how often it has struck


def fault_of(name, path):
    """The fault that meets this call, or None."""
    try:
        with open(sys.argv[3]) as file:
            text = file.read()
    except FileNotFoundError:
        return None
    fault = json.loads(text) if text else None
    if not fault or name not in fault["calls"] or not path.endswith(fault.get("suffix", "")):
        return None
    with lock:
        if spent.setdefault(text, 0) >= fault.get("times", sys.maxsize):
            return None
        spent[text] += 1
    return fault


def meet(name, path):
    fault = fault_of(name, path)
    if not fault:
        return
    begin = time.monotonic()
    while time.monotonic() - begin < fault.get("delay", 0) and os.path.exists(sys.argv[3]):
        time.sleep(0.005)
    if "errno" in fault:
        raise fuse.FuseOSError(getattr(errno, fault["errno"]))


def passing(name):
    """Decorates the method of a call: first it may meet a fault."""

    def decorate(function):
        def call(disk, path, *arguments):
            meet(name, path)
            return function(disk, disk.root + path, *arguments)

        call.__name__ = function.__name__
        return call

    return decorate


class Disk(fuse.Operations):
    use_ns = True

    def __init__(self, root):
        self.root = root

    @passing("getattr")
    def getattr(self, path, fh=None):
        info = os.lstat(path) if fh is None else os.fstat(fh)
        times = {name: getattr(info, f"{name}_ns") for name in TIMES}
        return {**{name: getattr(info, name) for name in STAT}, **times}

    @passing("readdir")
    def readdir(self, path, fh):
        return [".", "..", *os.listdir(path)]

    @passing("open")
    def open(self, path, flags):
        return os.open(path, flags & ~os.O_DIRECT)

    @passing("create")
    def create(self, path, mode, fi=None):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    @passing("read")
    def read(self, path, size, offset, fh):
        data = os.pread(fh, size, offset)
        fault = fault_of("read back", path) if offset == 0 else None
        return bytes([data[0] ^ 1]) + data[1:] if fault else data

    @passing("write")
    def write(self, path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    @passing("truncate")
    def truncate(self, path, length, fh=None):
        os.truncate(path, length)

    @passing("fallocate")
    def fallocate(self, path, mode, offset, size, fh):
        os.posix_fallocate(fh, offset, size)

    @passing("fsync")
    def fsync(self, path, datasync, fh):
        os.fsync(fh)

    @passing("fsyncdir")
    def fsyncdir(self, path, datasync, fh):
        pass

    @passing("release")
    def release(self, path, fh):
        os.close(fh)

    @passing("mkdir")
    def mkdir(self, path, mode):
        os.mkdir(path, mode)

    @passing("unlink")
    def unlink(self, path):
        os.unlink(path)

    @passing("rename")
    def rename(self, path, to):
        os.rename(path, self.root + to)


fuse.FUSE(Disk(sys.argv[1]), sys.argv[2], foreground=True, nothreads=False)
