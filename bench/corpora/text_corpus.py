# SPDX-License-Identifier: Apache-2.0
"""A corpus of real text: documentation and sources on this machine, by a byte-level BPE that is
trained on a part of it. Another machine has other text; the JSON says how much it was.
"""

import os
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "tools" / "python"

FOLDERS = ["/usr/share/doc", "/usr/share/common-licenses", "/usr/share/perl", "/usr/lib/python3",
           "/usr/lib/python3.11", "/usr/include"]
PATTERNS = ["*.txt", "*.md", "*.rst", "*.py", "*.pm", "*.pod", "*.h", "*.hpp", "copyright", "GPL*"]
VOCABULARY = 16000
TRAINED_ON_BYTES = 12_000_000


def text_files():
    for folder in FOLDERS:
        for pattern in PATTERNS:
            yield from sorted(Path(folder).rglob(pattern))


def train_tokenizer(path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    texts, left = [], TRAINED_ON_BYTES
    for number, file in enumerate(text_files()):
        if number % 7 == 0 and left > 0 and file.is_file():  # some of every folder
            texts.append(file.read_text(errors="ignore"))
            left -= len(texts[-1])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))


def make_text_corpus(program, folder, tokens):
    """At most about that number of tokens; made once. Returns the path of the .bin."""
    path, tokenizer = Path(folder) / f"text-{tokens}.bin", Path(folder) / "tokenizer.json"
    if path.with_suffix(".idx").exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    if not tokenizer.exists():
        train_tokenizer(tokenizer)
    globs = [word for pattern in PATTERNS for word in ("--glob", pattern)]
    folders = [name for name in FOLDERS if Path(name).is_dir()]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE),
                   "RINGPACK_PYTHON": sys.executable}  # environment of the tokenizer's process
    subprocess.run([program, "convert", "-q", "--force", "-o", str(path.with_suffix("")),
                    "--tokenizer", str(tokenizer), "--eos", "<|endoftext|>", "--max-tokens",
                    str(tokens), *globs, *folders],
                   check=True, env=environment)
    return path
