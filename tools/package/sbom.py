# SPDX-License-Identifier: Apache-2.0
"""Print the components of a wheel as a CycloneDX 1.6 document: sbom.py VERSION COMMIT.

They are the libraries of sources.txt, which the wheel is linked with, each with the SHA-256 of its
source, and compiler_rt of the compiler, zig."""

import json
import re
import sys
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
LICENCES = {  # SPDX expressions
    "expat": "MIT",
    "jansson": "MIT",
    "jemalloc": "BSD-2-Clause",
    "librandom123": "BSD-3-Clause",
    "liburing": "MIT OR LGPL-2.1-or-later",
    "libyaml": "MIT",
    "xxhash": "BSD-2-Clause",
    "zlib": "Zlib",
}


def component(line):
    name, file, digest, _ = line.split()
    version = re.search(r"_([\d.]+\d)", file)[1]
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:generic/{name}@{version}?checksum=sha256:{digest}",
        "licenses": [{"expression": LICENCES[name]}],
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def compiler():
    version = re.search(r"^ziglang==(.+)$", (HERE / "requirements.txt").read_text(), re.M)[1]
    return {
        "type": "library",
        "name": "zig",
        "version": version,
        "description": "its compiler_rt",
        "purl": f"pkg:pypi/ziglang@{version}",
        "licenses": [{"expression": "MIT"}],
    }


def document(version, commit):
    lines = (HERE / "sources.txt").read_text().split("\n")
    parts = [component(line) for line in lines if line.strip() and not line.startswith("#")]
    parts.append(compiler())
    main = {"type": "library", "bom-ref": "ringpack", "name": "ringpack", "version": version}
    main |= {"purl": f"pkg:generic/ringpack@{version}", "licenses": [{"expression": "Apache-2.0"}]}
    main |= {"properties": [{"name": "ringpack:commit", "value": commit}]}
    for part in parts:
        part["bom-ref"] = part["purl"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, commit)}",
        "version": 1,
        "metadata": {"component": main},
        "components": parts,
        "dependencies": [{"ref": "ringpack", "dependsOn": [part["purl"] for part in parts]}],
    }


if __name__ == "__main__":
    print(json.dumps(document(*sys.argv[1:3]), indent=1))
