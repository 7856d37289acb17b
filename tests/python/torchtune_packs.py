# SPDX-License-Identifier: Apache-2.0
"""Rows as torchtune packs them: its SFTTransform makes labels of tokens and mask, its PackedDataset
puts them end to end.

    torchtune_packs.py DOCUMENTS ROWS    two JSON files: [[tokens, mask] …] and [[tokens, labels] …]

torchtune imports all of its models and quantisation with its data sets, and torchao of a kind that
no torch of today has. The compared code uses none of that, so these packages are empty here."""

import importlib.abc
import importlib.machinery
import json
import sys
import types

SEQ_LEN = 48
NOT_NEEDED = {"torchao", "omegaconf", "tiktoken", "sentencepiece", "torchvision", "kagglehub"}


class Empty(types.ModuleType):
    """Whatever is imported from it is a class without anything."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in NOT_NEEDED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        if module.__name__ == "torchao.dtypes.nf4tensor":  # a decorator of functions
            module.implements = lambda *_, **__: lambda function: function


def main(documents, rows):
    sys.meta_path.insert(0, Finder())
    from torchtune.datasets import PackedDataset
    from torchtune.datasets._sft import SFTTransform

    label = SFTTransform(model_transform=lambda sample: sample)
    with open(documents) as file:
        samples = [label({"tokens": t, "mask": mask}) for t, mask in json.load(file)]
    packs = PackedDataset(samples, max_seq_len=SEQ_LEN, split_across_pack=True)
    with open(rows, "w") as file:
        json.dump([[pack["tokens"].tolist(), pack["labels"].tolist()] for pack in packs], file)


if __name__ == "__main__":
    main(*sys.argv[1:])
