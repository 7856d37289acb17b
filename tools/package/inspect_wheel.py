#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuse a wheel that would not run everywhere: inspect_wheel.py WHEEL

It must name the platform that auditwheel finds, link to only glibc, hide every symbol that is not
ringpack's, and carry the licences of the libraries that are linked into it.
"""

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile

SOURCES = Path(__file__).with_name("sources.txt")
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
GLIBC |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def needed(elf):
    tags = elf.get_section_by_name(".dynamic").iter_tags()
    return {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}


def exported(elf):
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    return {s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s.name}


def faults(path):
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        elf = {
            name: ELFFile(io.BytesIO(wheel.read(name)))
            for name in ("ringpack/libringpack.so", "ringpack/bin/ringpack")
        }
    for name, file in elf.items():
        if more := needed(file) - GLIBC:
            yield f"{name} needs {', '.join(sorted(more))}, which may not be there"
    versions = r"rp_\w+|RINGPACK_[0-9.]+"  # the nodes of engine/ringpack.map are also symbols
    foreign = {n for n in exported(elf["ringpack/libringpack.so"]) if not re.fullmatch(versions, n)}
    if foreign:
        yield f"libringpack.so exports {', '.join(sorted(foreign))} into the trainer's process"
    linked = [line.split()[0] for line in SOURCES.read_text().splitlines() if line[0] != "#"]
    linked.append("zig")
    for licence in ["licenses/LICENSE", *(f"licenses/linked/{library}.txt" for library in linked)]:
        if not any(name.endswith(licence) for name in names):
            yield f"{licence} is missing"
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", path], capture_output=True, text=True
    )
    tag = re.search(r"manylinux_\w+", Path(path).stem)
    text = " ".join(shown.stdout.split())
    if not tag or f'platform tag: "{tag[0]}"' not in text:
        yield f"auditwheel finds another platform: {text or shown.stderr}"


def main():
    found = list(faults(sys.argv[1]))
    for fault in found:
        print(f"{sys.argv[1]}: {fault}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
