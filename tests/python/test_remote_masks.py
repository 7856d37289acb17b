# SPDX-License-Identifier: Apache-2.0
"""Masks of corpora in stores: a sidecar that is made of a URL has the mask that one made on a disk
has, and a mask that no sidecar holds is refused, because its prompts would be trained."""

import json

import test_olmo
from convert_kit import convert
from mask_kit import index
from refusal_kit import refused, run
from remote_kit import answer, environment, store  # with fixtures


def masked_data_set(program, folder, place):
    """A Megatron data set with a file of spans, and no sidecar; the sidecar is `folder`'s."""
    rows = [{"input_ids": [1, 2, 3, 4], "labels": [-100, 2, -100, 4]}] * 30
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    convert(program, "--no-append-eos", "--vocab-size", 100, "-o", place / "masked",
            folder / "a.jsonl")
    (place / "masked.bin.rpi").rename(folder / "masked.bin.rpi")
    return folder / "masked.bin.rpi"


def made_of_url(program, folder, url, *options):
    """The sidecar that `ringpack index` makes of a URL."""
    sidecars = folder / "sidecars"
    index(program, *options, "--index-dir", sidecars, url)
    (made,) = sidecars.iterdir()
    return made


PLAN = ("plan", "--seq-len=8", "--batch-size=1", "--source")


def test_a_mask_that_no_sidecar_holds_is_refused(program, folder, store):
    sidecar = masked_data_set(program, folder, store.folder)
    url = f"{store.base}/masked.bin"
    texts = [f"{store.base}/masked.spans", "is not in an index", "--index-dir DIR", "mask: none"]
    refused(program, *PLAN, url, texts=texts)
    sidecar.rename(store.folder / "masked.bin.rpi")
    done = run(program, *PLAN, url)
    assert done.returncode == 0, done.stderr
    (store.folder / "masked.bin.rpi").unlink()
    (store.folder / "masked.spans").unlink()
    done = run(program, *PLAN, url)
    assert done.returncode == 0, done.stderr


def test_a_mask_that_is_denied_is_said(program, folder, store):
    """Many stores answer 403 for an absent object: it is no error, and no silence."""
    masked_data_set(program, folder, store.folder)
    serve = store.serve

    def deny(handler):
        return answer(handler, 403, b"") if ".spans" in handler.path else serve(handler)

    store.serve = deny
    done = run(program, *PLAN, f"{store.base}/masked.bin")
    assert done.returncode == 0 and "warning: 1 of 1 shards: access to their .spans was denied" in (
        done.stderr)


def test_the_sidecar_of_a_megatron_url_has_its_mask(program, folder, store):
    sidecar = masked_data_set(program, folder, store.folder)
    made = made_of_url(program, folder, f"{store.base}/masked.bin")
    assert made.read_bytes() == sidecar.read_bytes()


def test_the_sidecar_of_an_olmo_url_has_its_mask(program, folder, store):
    for names in (("token_ids", "labels_mask"), ("input_ids", "label_mask")):
        place = folder / names[0]
        documents = test_olmo.make_documents(31)
        masked = test_olmo.Masked(place, documents, names=names, dtype="u16")
        [path] = masked.sources[0]["shards"]
        for file in place.iterdir():
            (store.folder / file.name).write_bytes(file.read_bytes())
        index(program, "--dtype", "u16", path)
        url = f"{store.base}/{names[0]}_part_0000.npy"
        made = made_of_url(program, place, url, "--dtype", "u16", "--format", "olmo")
        assert made.read_bytes() == (place / f"{names[0]}_part_0000.npy.rpi").read_bytes()
