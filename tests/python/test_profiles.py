# SPDX-License-Identifier: Apache-2.0
"""Profiles: the names, types and shapes that frameworks want, without a copy unless one is
announced."""

import re
import subprocess

import numpy
import pytest
import ringpack
from ringpack import profiles
from stream_kit import PATIENCE
from stream_oracle import IGNORED, INPUTS

LENGTH, ROWS = INPUTS["seq_len"], 3
WIDE, FLAT, DOCUMENTS = (ROWS, LENGTH), (1, ROWS * LENGTH), INPUTS["max_docs_per_row"]
OF_TRANSFORMERS = {
    "cu_seq_lens_q": ("int32", None),
    "cu_seq_lens_k": ("int32", None),
    "max_length_q": int,
    "max_length_k": int,
}
ENDS_OF_THD = [f"cu_seqlens_{of}{pads}" for pads in ("", "_padded") for of in ("q", "kv")]
WANTED = {  # profile -> name -> type and shape, or the type of a number
    "hf": {
        "input_ids": ("int64", WIDE),
        "labels": ("int64", WIDE),
        "position_ids": ("int64", WIDE),
        **OF_TRANSFORMERS,
        "seq_idx": ("int32", WIDE),
        "use_cache": bool,
    },
    "trl": {
        **dict.fromkeys(("input_ids", "labels", "position_ids"), ("int64", FLAT)),
        **OF_TRANSFORMERS,
        "seq_idx": ("int32", FLAT),
        "use_cache": bool,
    },
    "megatron": {
        "tokens": ("int64", WIDE),
        "labels": ("int64", WIDE),
        "loss_mask": ("float32", WIDE),
        "position_ids": ("int64", WIDE),
        "cu_seqlens": ("int32", (ROWS * (DOCUMENTS + 1) + 1,)),
        "max_seqlen": int,
    },
    "olmo": {
        "input_ids": ("int64", WIDE),
        "doc_lens": ("int32", (ROWS, DOCUMENTS + 1)),
        "max_doc_lens": list,
        "label_mask": ("bool", WIDE),
    },
    "torchtitan": dict.fromkeys(("input", "positions", "labels"), ("int64", WIDE)),
    "grain": dict.fromkeys(("inputs", "inputs_segment_ids", "inputs_positions"), ("int32", WIDE)),
    "megatron_rows": {
        "tokens": ("int64", WIDE),
        "labels": ("int64", WIDE),
        "loss_mask": ("float32", WIDE),
        "position_ids": ("int64", WIDE),
        "cu_seqlens": ("int32", (ROWS, LENGTH + 1)),
        "max_seqlen": ("int32", (ROWS,)),
    },
    "megatron_thd": {
        "tokens": ("int64", FLAT),
        "labels": ("int64", FLAT),
        "loss_mask": ("float32", FLAT),
        "position_ids": ("int64", FLAT),
        "qkv_format": str,
        **dict.fromkeys(ENDS_OF_THD, ("int32", None)),
        "max_seqlen_q": int,
        "max_seqlen_kv": int,
    },
    "maxtext": dict.fromkeys(
        f"{of}{what}" for of in ("inputs", "targets") for what in ("", "_position", "_segmentation")
    ),
}
WANTED["maxtext"] = dict.fromkeys(WANTED["maxtext"], ("int32", WIDE))
MADE = {  # computed, not viewed
    "olmo": {"doc_lens", "label_mask"},
    **dict.fromkeys(("hf", "trl"), {"cu_seq_lens_q", "cu_seq_lens_k", "seq_idx"}),
    "megatron_rows": {"cu_seqlens", "max_seqlen"},
    "megatron_thd": set(ENDS_OF_THD),
    "maxtext": {"targets", "targets_segmentation"},
}
KINDS = {"numpy": lambda array: array, "torch": lambda tensor: tensor.numpy(), "jax": numpy.asarray}


def test_the_names_are_those_of_the_config(program):
    keys = subprocess.run([program, "config", "keys"], capture_output=True, text=True, check=True)
    [words] = re.findall(r"^  profile .*\n +(\S+) ", keys.stdout, re.MULTILINE)
    names = {profile.engine or name for name, profile in profiles.PROFILES.items()}
    assert set(words.split("|")) == names | {"min", "full"}


def address(view, kind):
    if kind == "torch":
        return view.data_ptr()
    return view.unsafe_buffer_pointer() if kind == "jax" else view.ctypes.data


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("profile", WANTED)
def test_names_types_shapes_and_places(make, profile, kind):
    if kind != "numpy":
        pytest.importorskip(kind)
    is_wide = kind == "jax" and profile not in ("grain", "maxtext")
    wide = {"token_dtype": "i32"} if is_wide else {}
    views = {"copy": False} if kind == "torch" else {}
    with make(profile=profile, return_type=kind, **wide, **views) as loader:
        batch = next(loader)
        sections = [batch.view(name, kind="numpy") for name in batch._form.sections]
        places = {view.ctypes.data for view in sections}
        assert list(batch) == list(WANTED[profile])
        for name, value in batch.items():
            wanted = WANTED[profile][name]
            if isinstance(wanted, type):
                assert type(value) is wanted, name
                continue
            array = KINDS[kind](value)
            dtype = "int32" if "token_dtype" in wide and wanted[0] == "int64" else wanted[0]
            assert str(array.dtype) == dtype, name
            assert wanted[1] is None or array.shape == wanted[1], name
            made = name in MADE.get(profile, ())
            assert (address(value, kind) in places) != made, name


def test_the_content_is_the_oracles(make, expected):
    """Values, profile by profile, against sections made from the plan's rows."""
    loaders = {profile: iter(make(profile=profile, run=profile)) for profile in WANTED}
    for _ in range(8):
        batches = {profile: next(loader) for profile, loader in loaders.items()}
        first = batches["hf"].first_row
        made, ends = expected.batch(first, ROWS)
        tokens, shifted = made["input_ids"], made["labels"]
        aligned = numpy.where(made["position_ids"] == 0, IGNORED, tokens)
        aligned[made["segment_ids"] == 0] = IGNORED
        hf, megatron, olmo = batches["hf"], batches["megatron"], batches["olmo"]
        titan, grain, trl = batches["torchtitan"], batches["grain"], batches["trl"]
        assert (hf["input_ids"] == tokens).all() and (hf["labels"] == aligned).all()
        assert hf["cu_seq_lens_q"].tolist() == hf["cu_seq_lens_k"].tolist() == ends
        assert hf["max_length_q"] == hf["max_length_k"] == max(numpy.diff(ends))
        assert trl["labels"].tolist() == [aligned.ravel().tolist()]
        numbers = numpy.repeat(numpy.arange(len(ends) - 1), numpy.diff(ends))
        assert (hf["seq_idx"].ravel() == numbers).all() and (trl["seq_idx"] == numbers).all()
        assert trl["cu_seq_lens_q"].tolist() == ends and not hf["use_cache"]
        assert (megatron["labels"] == shifted).all()
        assert (megatron["loss_mask"] == made["loss_mask"]).all()
        assert (megatron["cu_seqlens"] == made["cu_seqlens"]).all()
        assert (titan["labels"] == shifted).all()
        assert (titan["positions"] == made["position_ids"]).all()
        assert (grain["inputs_segment_ids"] == made["segment_ids"]).all()
        assert_megatron(batches["megatron_rows"], batches["megatron_thd"], made, ends)
        assert_maxtext(batches["maxtext"], made)
        assert (olmo["label_mask"] == (aligned != IGNORED)).all()
        assert (olmo["doc_lens"].sum(axis=1) == LENGTH).all()
        assert olmo["max_doc_lens"] == olmo["doc_lens"].max(axis=1).tolist()
        within = numpy.concatenate([[0], numpy.cumsum(olmo["doc_lens"][olmo["doc_lens"] > 0])])
        assert within.tolist() == ends


def assert_megatron(rows, thd, made, ends):
    """Lengths by row as get_batch reads them, and by document as PackedSeqParams has them."""
    for row, (found, most) in enumerate(zip(rows["cu_seqlens"], rows["max_seqlen"])):
        own = [end - row * LENGTH for end in ends if row * LENGTH <= end <= (row + 1) * LENGTH]
        assert found.tolist() == own + [LENGTH] * (LENGTH + 1 - len(own))
        assert most == max(numpy.diff(own))
    for name, section in ("tokens", "input_ids"), ("labels", "labels"), ("loss_mask", "loss_mask"):
        assert (rows[name] == made[section]).all()
        assert thd[name].tolist() == [made[section].ravel().tolist()]
    assert thd["qkv_format"] == "thd" and thd["max_seqlen_q"] == max(numpy.diff(ends))
    assert thd["cu_seqlens_q_padded"].tolist() == thd["cu_seqlens_kv_padded"].tolist() == ends
    real = thd["cu_seqlens_q"].tolist()
    segments, documents = made["segment_ids"].ravel(), numpy.diff(real)
    assert documents.tolist() == [
        (segments[begin:end] > 0).sum() for begin, end in zip(ends, ends[1:])
    ]


def assert_maxtext(found, made):
    has_label = made["labels"] != IGNORED
    assert (found["inputs"] == made["input_ids"]).all()
    assert (found["targets"] == numpy.where(has_label, made["labels"], 0)).all()
    for of in "inputs", "targets":
        assert (found[f"{of}_position"] == made["position_ids"]).all()
    assert (found["inputs_segmentation"] == made["segment_ids"]).all()
    assert (found["targets_segmentation"] == made["segment_ids"] * has_label).all()


def test_sections_beyond_the_profile_can_be_had(make):
    with make(profile="torchtitan", flat=True) as loader:
        batch = next(loader)
        assert batch["input"].shape == (ROWS * LENGTH,)
        assert batch["cu_seqlens"][batch.segments] == ROWS * LENGTH
        assert batch["rows"]["row"].tolist() == [0, 1, 2]
        assert "rows" not in batch and len(batch) == 3
        assert set(batch.copy()) == set(batch)


def test_a_run_that_does_not_fit_the_profile_is_refused(make, folder):
    place = {"run_dir": folder, "connect_timeout": PATIENCE}
    with make(profile="min", run="small") as owner:
        owner._detach()
        for profile, text in (
            ("grain", "position_ids, segment_ids"),
            ("megatron", "labels, loss_mask, position_ids"),
        ):
            with pytest.raises(ringpack.UsageError, match=f"needs {text}") as raised:
                ringpack.Loader(run="small", profile=profile, **place).attach()
            assert "profile:" in raised.value.hint
    with make(profile="full", run="large") as owner:
        owner._detach()
        with pytest.raises(ringpack.UsageError, match="needs aligned labels"):
            ringpack.Loader(run="large", profile="hf", **place).attach()
        with ringpack.Loader(run="large", profile="grain", **place) as loader:
            assert list(next(loader)) == list(WANTED["grain"])
    with pytest.raises(ringpack.ConfigError, match="profile"):
        make(profile="nemo").attach()


def test_only_the_engine_makes_labels_across_cuts():
    for name in sorted(profiles.PROFILES):
        wanted = profiles.PROFILES[name]
        views = {field.section for field in wanted.fields.values() if isinstance(field, tuple)}
        sections = tuple(views | wanted.needs)
        if name.startswith("megatron") or name in ("torchtitan", "maxtext"):
            profiles.check_sections(name, sections, profiles.ACROSS_CUTS)
            continue
        with pytest.raises(ringpack.UsageError, match="label_across_cuts|shifted"):
            profiles.check_sections(name, sections, profiles.ACROSS_CUTS)


PLAN = [("planned", "u8"), ("align", "u4"), ("is_skipped", "u4")]


class AlignedBatch:
    """A row of 5 and 3 tokens in places of 4, and one without an alignment."""

    batch_size, seq_len = 2, 16
    _form = type("Form", (), {"sections": ("doc_lens", "row_plans")})
    _views = {
        "doc_lens": numpy.array([[5, 3, 0], [7, 0, 0]], "i4"),
        "row_plans": numpy.array([(0, 4, 0), (1, 1, 0)], PLAN),
    }

    def view(self, name, flat, kind):
        return self._views[name]


def test_olmo_counts_places_of_an_aligned_row():
    made = profiles._lengths_with_tails(AlignedBatch())
    assert made.tolist() == [[8, 4, 4, 0], [7, 9, 0, 0]]


def test_jax_arrays_keep_the_lease(make, expected):
    jax = pytest.importorskip("jax")
    with make(profile="grain", return_type="jax") as loader:
        batch = next(loader)
        part = batch["inputs"]
        total = jax.jit(lambda tokens: tokens.sum())(part)
        with pytest.raises(ringpack.LeaseError, match="views of input_ids"):
            batch.release()
        for _ in range(3):
            next(loader)
        wanted = expected.batch(0, ROWS)[0]["input_ids"]
        assert (numpy.asarray(part) == wanted).all() and int(total) == wanted.sum()
        del part
        copies = next(loader).copy()
    assert all(isinstance(copied, jax.Array) for copied in copies.values())
