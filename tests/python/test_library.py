# SPDX-License-Identifier: Apache-2.0
"""The ctypes twins match the C headers, and errors come over whole."""

import ctypes
import errno
import os
import pickle
import re
import subprocess

import pytest
import ringpack
from conftest import ROOT
from ringpack import _library, errors

TWINS = {
    "rp_error": _library.Error,
    "rp_section_layout": _library.SectionLayout,
    "rp_geometry": _library.Geometry,
    "rp_client_options": _library.ClientOptions,
    "rp_batch": _library.BatchInfo,
    "rp_client_counts": _library.Counts,
}


def ask_compiler(compiler, folder, prints):
    """The output of a C program with the headers, line by line."""
    source, program = folder / "ask.c", folder / "ask"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <ringpack/client.h>\n"
        "int main(void) {" + "\n".join(prints) + "return 0; }\n"
    )
    subprocess.run([*compiler, "-o", program, source], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def test_the_version_is_that_of_the_library(program, compiler):
    cmake = (ROOT / "CMakeLists.txt").read_text()
    wanted = re.search(r"project\(ringpack VERSION ([\d.]+)", cmake)[1]
    assert ringpack.__version__ == wanted
    assert _library.SONAME == "libringpack.so." + wanted.rsplit(".", 1)[0]
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ringpack.nonsense


def test_a_library_of_another_version_is_refused(fake, monkeypatch):
    series = _library.SONAME.split(".so.")[1]
    monkeypatch.setenv("FAKE_VERSION", f"{series}0.3")
    with pytest.raises(ringpack.RingpackError) as told:
        _library.library()
    assert f"is version {series}0.3, and this package needs {series}.*" in str(told.value)
    assert "pip install" in told.value.hint
    monkeypatch.setenv("FAKE_VERSION", f"{series}.7")
    assert _library.version() == f"{series}.7"


def test_structures_are_those_of_the_headers(compiler, tmp_path):
    ours, prints = [], []
    for name, twin in TWINS.items():
        ours.append(f"{name} {ctypes.sizeof(twin)}")
        prints.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for field, _ in twin._fields_:
            place = getattr(twin, field)
            ours.append(f"{name}.{field} {place.offset} {place.size}")
            prints.append(
                f'printf("{name}.{field} %zu %zu\\n", offsetof(struct {name}, {field}),'
                f" sizeof(((struct {name} *)0)->{field}));"
            )
    assert ours == ask_compiler(compiler, tmp_path, prints)


def test_enumerations_are_those_of_the_headers(compiler, tmp_path):
    types = {"NONE": None, "U16": "<u2", "I32": "<i4", "I64": "<i8", "F32": "<f4", "RECORD": None}
    types |= {"BF16": "<u2", "F16": "<f2", "F64": "<f8", "U8": "|u1", "I8": "|i1", "I16": "<i2"}
    ours = {f"RP_SECTION_{name.upper()}": n for n, name in enumerate(_library.SECTIONS)}
    ours["RP_SECTION_COUNT"] = len(_library.SECTIONS)
    ours["RP_SECTION_ROOM"] = _library.SECTION_ROOM
    ours |= {"RP_SECTION_SIDES": _library.SECTION_SIDES, "RP_SIDES_MAX": _library.SIDES_MAX}
    ours |= {"RP_SIDE_OF_DOCUMENT": _library.OF_DOCUMENT}
    ours |= {"RP_NEXT_BATCH": _library.NEXT_BATCH, "RP_NEXT_EMPTY": _library.NEXT_EMPTY}
    ours |= {"RP_NEXT_END": _library.NEXT_END}
    assert _library.DTYPES == tuple(types.values())
    ours |= {f"RP_DTYPE_{name}": n for n, name in enumerate(types)}
    prints = [f'printf("{name} %d\\n", (int){name});' for name in ours]
    assert [f"{name} {n}" for name, n in ours.items()] == ask_compiler(compiler, tmp_path, prints)


def test_every_field_of_the_headers_has_a_twin():
    text = (ROOT / "include/ringpack/client.h").read_text()
    text += (ROOT / "include/ringpack/batch.h").read_text()
    for name, twin in TWINS.items():
        if name == "rp_error":
            continue
        body = re.search(rf"struct {name} \{{(.*?)\n\}};", text, re.S)[1]
        body = re.sub(r"/\*.*?\*/|\[\w+\]|const|struct \w+|\*", "", body, flags=re.S)
        fields = []
        for declaration in filter(str.strip, body.split(";")):
            fields += [word.split()[-1] for word in declaration.split(",")]
        assert fields == [field for field, _ in twin._fields_]


def test_the_library_that_is_looked_for_is_the_one_that_is_built():
    built = os.environ["RINGPACK_LIBRARY"]
    assert os.path.exists(os.path.join(os.path.dirname(built), _library.SONAME))


def test_errors_are_those_of_the_header():
    text = (ROOT / "include/ringpack/error.h").read_text()
    codes = {name: -int(code) for name, code in re.findall(r"X\((RP_E_\w+), (\d+),", text)}
    assert len(codes) > 10
    for name, code in codes.items():
        assert type(errors.error_of(code, "m")) is type(errors.error_named(name, "m"))
        assert errors.error_of(code, "m").code == code
        assert type(errors.error_of(code, "m")) is not ringpack.RingpackError
    assert set(errors.__all__) <= set(ringpack.__all__)


def test_an_error_says_what_to_do_next():
    error = errors.error_of(-5005, "seed: expected 1, found 2", "give seed=2")
    assert isinstance(error, ringpack.CheckpointMismatchError)
    assert str(error) == "seed: expected 1, found 2\n  next: give seed=2"
    assert error.hint == "give seed=2"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.args, again.hint, again.code) == (
        type(error),
        error.args,
        error.hint,
        error.code,
    )
    assert "No space left" in str(errors.error_of(-errno.ENOSPC, ""))
    assert errors.error_named("ENOENT", "m").code == -errno.ENOENT


def test_ask_engine(fake):
    assert ringpack.stat("demo") == {"run": "demo"}
    assert ringpack.checkpoint("demo") == "/checkpoints/1"
    with pytest.raises(ringpack.EngineGoneError, match="nobody"):
        ringpack.stat("nobody")


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(_library, "_loaded", None)
    monkeypatch.setenv("RINGPACK_LIBRARY", "/nowhere/libringpack.so")
    with pytest.raises(ringpack.RingpackError, match=r"/nowhere/libringpack\.so"):
        ringpack.stat()
    assert getattr(ringpack, "__version__", None) is None  # as pydoc and others do
    with pytest.raises(AttributeError, match=r"/nowhere/libringpack\.so"):
        _ = ringpack.__version__


def test_a_foreign_library_is_refused(monkeypatch):
    monkeypatch.setattr(_library, "_loaded", None)
    monkeypatch.setenv("RINGPACK_LIBRARY", "libc.so.6")
    with pytest.raises(ringpack.RingpackError, match="rp_client_attach"):
        ringpack.stat()
