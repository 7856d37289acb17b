# SPDX-License-Identifier: Apache-2.0
"""A measurement with a program of its own: its arguments, its corpus, and its JSON."""

import argparse
import json
import os
import sys
from pathlib import Path

from corpora.token_corpus import make_corpus
from engine import Bench, Failed


def run_alone(doc, tokens, rounds, epochs, measure):
    """`measure(bench, corpus, rounds)` returns the content of NAME.json, in the folder of the
    corpora."""
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(description=doc.split("\n\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--data", default="build/bench", help="where corpora are kept")
    parser.add_argument("--tokens", type=int, default=tokens)
    parser.add_argument("--rounds", type=int, default=rounds)
    arguments = parser.parse_args()
    data = Path(arguments.data).resolve()
    corpus = make_corpus(data, arguments.tokens)
    settings = {"corpus": corpus, "seq_len": 4096, "batch_size": 8, "packing": "lookahead",
                "epochs": epochs}
    bench = Bench(arguments.build, data, settings)
    before = os.getloadavg()
    try:
        found = measure(bench, corpus, arguments.rounds)
    except Failed as failure:
        sys.exit(f"{name}.py: {failure}")
    result = {"load": [before, os.getloadavg()], "checks": bench.checks, **found}
    (data / f"{name}.json").write_text(json.dumps(result, indent=1))
