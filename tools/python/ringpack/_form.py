# SPDX-License-Identifier: Apache-2.0
"""The fields of a batch, from the arguments of its loader and the sections of the run."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ._client import Client
from ._library import RECORDS, SECTIONS
from ._made import Recipe, Wishes
from ._pairs import REFERENCE, REFERENCES, check_groups
from ._views import FLAT, ROWS, Form, look_at, tensor_of
from .batch import Batch
from .errors import UsageError
from .profiles import ALIGNED, PROFILES, SHIFTED, Field, Profile, View, check_sections


def _ends(batch: Batch) -> Any:
    return batch.adopt(batch.view("cu_seqlens", kind="numpy")[: batch.segments + 1].copy())


_OF_TORCH = Profile(
    {
        "input_ids": View("input_ids"),
        "labels": View("labels"),
        "position_ids": View("position_ids"),
        "cu_seqlens": _ends,
        "max_seqlen": lambda batch: int(batch.max_seqlen),
    },
    labels=SHIFTED,
    needs=frozenset({"cu_seqlens"}),
)
"""The sections of torch's loops without a profile: a model's input and the labels of its logits,
positions, and the arguments of flash_attn_varlen_func."""


def _sections_of(profile: Profile) -> list[str]:
    views = [field.section for field in profile.fields.values() if isinstance(field, View)]
    return [*views, *sorted(profile.needs)]


def add_defaults(options: dict[str, Any], kind: str, has_config: bool) -> bool:
    """Complete the options of an engine that a Loader describes. True if batches have the form of
    torch's loops: without a profile, if no config file may name one. `sections` adds to their
    sections, as the engine adds it to a profile's. Rows of profile pairs are one pair each."""
    name, given = options.get("profile"), options.get("sections")
    if name == "pairs" and not has_config:
        options.setdefault("group", 2)
        options.setdefault("max_docs_per_row", 2)
    if kind != "torch" or name is not None or has_config or "label_mode" in options:
        return False
    options.setdefault("token_dtype", "i64")
    more = given.split(",") if isinstance(given, str) else given
    own = list(more) if isinstance(more, Iterable) else []
    words = dict.fromkeys([*_sections_of(_OF_TORCH), *(str(word).strip() for word in own)])
    options["sections"] = list(words)
    return True


def _made_of(wishes: Wishes, client: Client) -> Mapping[str, Recipe]:
    if wishes.split is not None:
        wishes.split.check_length(client.geometry.seq_len)
        if wishes.split.by == "document":
            aligns = re.findall(r"^stage\[\d+\]\.align=(\d+)$", client.contract(), re.M)
            for align in aligns or ["1"]:  # version 1
                wishes.split.check_align(int(align))
    if wishes.mtp > client.geometry.seq_len:
        raise UsageError(
            f"mtp is {wishes.mtp}, and a row has {client.geometry.seq_len} tokens",
            "mtp=2, for one more label of each token",
        )
    return wishes.recipes(client.layout, client.geometry.label_mode == ALIGNED)


def form_of(client: Client, loader: Any) -> Form:
    """The Form of all batches of a loader that is attached with this client."""
    keep, profile, kind, flat = loader._keep, loader._profile, loader._kind, loader._flat
    slots = client.geometry.slots
    ahead = int(loader._device is not None)
    if keep + ahead >= slots:
        raise UsageError(
            f"keep={keep} {'with device ' * ahead}leaves no room in a ring of {slots} batches",
            f"prefetch_factor={(keep + ahead) * 2}, or a lower keep",
        )
    fields: Mapping[str, Field] = {}
    hidden: set[str] = set()
    wishes: Wishes = loader._wishes
    more = wishes.more_labels(client.layout, client.geometry.label_mode == ALIGNED)
    sections = (*client.layout, *more)
    tensors = tuple(name for name in sections if kind == "numpy" or name not in RECORDS)
    if profile is not None and profile in PROFILES:
        check_sections(profile, sections, client.geometry.label_mode, wishes.split is not None)
        if profile == "pairs":
            check_groups(client.contract())
        fields = PROFILES[profile].fields
        if wishes.split is not None:
            fields = PROFILES[profile].slices or fields
        if profile == "pairs" and REFERENCE in sections:
            fields, hidden = {**fields, **REFERENCES}, {REFERENCE}
    made = _made_of(wishes, client)
    if made and loader._is_static:
        raise UsageError(
            "static=True keeps the memory of sections of the ring, and with cp_size, mtp, "
            f"ignore_index or label_dtype a batch makes {', '.join(sorted(made))}",
            "leave static out, and copy these to memory of your own",
        )
    if loader._is_default and {*_sections_of(_OF_TORCH)} <= {*sections}:
        fields = _OF_TORCH.fields
    if fields:
        fields = {**fields, **{name: View(name) for name in more if name not in fields}}
    tensor, shape = None if kind == "numpy" else tensor_of(kind), FLAT if flat else ROWS
    views = {name: View(name) for name in sections if name not in fields}
    views.update({name: field for name, field in fields.items() if isinstance(field, View)})
    places = {
        name: (section, shape if own is None else own) for name, (section, own) in views.items()
    }
    return Form(
        client=client,
        kind=kind,
        is_own=loader._is_own,
        tensor=tensor,
        shape=shape,
        sections=sections,
        made=made,
        fields=fields,
        places=places,
        looks={
            name: look_at(section, client.layout[section], shape, tensor)
            for name, (section, shape) in places.items()
            if section not in made
        },
        # records can be had all the same, by name; side columns were asked for by the config
        names=(*fields, *(name for name in sections if name not in {*SECTIONS, *fields, *hidden}))
        if fields
        else tensors,
        went_on=f"was closed when the loader went on (keep={keep})",
    )
