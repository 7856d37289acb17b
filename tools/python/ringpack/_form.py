# SPDX-License-Identifier: Apache-2.0
"""What `batch[name]` gives, from what the user asked for and what the run has."""

from collections.abc import Mapping
from typing import Any

from ._client import Client
from ._library import RECORDS
from ._views import FLAT, ROWS, look_at, tensor_of
from .batch import Form
from .errors import UsageError
from .profiles import PROFILES, Field, View, check_sections


def form_of(client: Client, loader: Any) -> Form:
    """The Form of all batches of a loader that is attached with this client."""
    keep, profile, kind, flat = loader._keep, loader._profile, loader._kind, loader._flat
    slots = client.geometry.slots
    if keep >= slots:
        raise UsageError(
            f"keep={keep} leaves no room in a ring of {slots} batches",
            f"prefetch_factor={keep * 2}, or a lower keep",
        )
    fields: Mapping[str, Field] = {}
    sections = tuple(client.layout)
    tensors = tuple(name for name in sections if kind == "numpy" or name not in RECORDS)
    if profile is not None and profile in PROFILES:
        check_sections(profile, sections, client.geometry.label_mode)
        fields = PROFILES[profile].fields
    tensor, shape = None if kind == "numpy" else tensor_of(kind), FLAT if flat else ROWS
    views = {name: View(name) for name in sections if name not in fields}
    views.update({name: field for name, field in fields.items() if isinstance(field, View)})
    return Form(
        client=client,
        kind=kind,
        is_own=loader._is_own,
        tensor=tensor,
        shape=shape,
        sections=sections,
        fields=fields,
        looks={
            name: look_at(section, client.layout[section], shape if own is None else own, tensor)
            for name, (section, own) in views.items()
        },
        names=tuple(fields) or tensors,  # records can be had all the same, by name
        went_on=f"was closed when the loader went on (keep={keep})",
    )
