"""`mmhash key`: the key of what a file holds is the library's key of the same thing in memory."""

import json
import os
import pickle
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner, Result

import mmhash
from mmhash.cli.app import app

TENANT = bytes(range(32))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["key", *map(str, arguments)])


def keys_of(*arguments: object) -> dict[str, str]:
    """The printed keys by name, in the printed order."""
    done = run(*arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = (line.split("  ", 1) for line in done.stdout.splitlines())
    return {name: hexadecimal for hexadecimal, name in lines}


def refusal(*arguments: object) -> str:
    """Return the error message for a file that has no key."""
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_bytes(file: Path) -> None:
    file.write_bytes(b"foo")
    secret = file.with_name("tenant")
    assert keys_of(file) == {str(file): mmhash.key(b"foo").hex()}
    assert keys_of(file, "--algorithm", "xxh3") == {
        str(file): mmhash.key(b"foo", algorithm="xxh3").hex()
    }
    for spelling in (TENANT, TENANT.hex().encode(), TENANT.hex().upper().encode() + b"\n"):
        secret.write_bytes(spelling)
        assert keys_of(file, "--tenant-file", secret) == {
            str(file): mmhash.key(b"foo", tenant=TENANT).hex()
        }


@pytest.mark.parametrize(
    "secret", [b"", TENANT[1:], TENANT + b"\n", b" " * 64, TENANT.hex().encode() + b"00", b"a" * 99]
)
def test_tenant_file_of_another_size(file: Path, secret: bytes) -> None:
    file.write_bytes(secret)
    done = run(file, "--tenant-file", file)
    assert isinstance(done.exception, mmhash.InputError)  # main() makes a line of it
    assert "32 bytes or 64 hex" in str(done.exception)


@pytest.mark.parametrize(
    "options", [["--of", "voxels"], ["--tenant-file", "/nonexistent"]], ids=["of", "tenant"]
)
def test_wrong_usage_exits_2(file: Path, options: list[str]) -> None:
    file.write_bytes(b"foo")
    assert run(*options, file).exit_code == 2


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
        np.arange(3, dtype=">i4"),
        np.float64(0.5),
        np.empty((0, 3)),
        np.array([True, False]),
    ],
    ids=["C order", "Fortran order", "big endian", "scalar", "empty", "bool"],
)
def test_npy(tmp_path: Path, array: Any) -> None:
    file = tmp_path / "array.NPY"
    with file.open("wb") as opened:
        np.save(opened, array)
    assert keys_of(file) == {str(file): mmhash.key(array).hex()}


class _Trap:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_npy_of_objects_is_refused(tmp_path: Path) -> None:
    file, trap = tmp_path / "objects.npy", tmp_path / "trap"
    np.save(file, np.array([_Trap(trap)], dtype=object), allow_pickle=True)
    said = refusal(file)
    assert "pickles" in said
    assert not trap.exists()


def _npy(header: str, body: bytes = b"") -> bytes:
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + body


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        pickle.dumps([1]),
        b"PK\3\4",
        _npy(""),
        _npy("(" * 100),
        _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}".ljust(20_000), b"1234"),
        _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", b"1234"),
        _npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**30},)}}", b"1234"),
        _npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**40}, {2**40})}}"),
        _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}", b"1234"),
        _npy("{'descr': '<f4,<f4', 'fortran_order': False, 'shape': (1,)}", b"12345678"),
        _npy("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}", b"12345678"),
    ],
)
def test_a_malformed_npy_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "array.npy"
    file.write_bytes(content)
    refusal(file)


def test_safetensors_at_the_edge(tmp_path: Path) -> None:
    file, secret = tmp_path / "model.safetensors", tmp_path / "tenant"
    secret.write_bytes(TENANT)
    tensors = {
        "a\nb": torch.tensor(1.5),
        "empty": torch.empty(0, 3),
        "odd": torch.ones(3, dtype=torch.int8),
    }
    save_file(tensors, file)
    keys = keys_of(file, "--tenant-file", secret, "--algorithm", "xxh3")
    expected = {
        name: mmhash.key(tensor, algorithm="xxh3", tenant=TENANT).hex()
        for name, tensor in tensors.items()
    }
    assert keys.pop(f"{file}:empty") == expected["empty"]
    assert keys.pop(f"{file}:odd") == expected["odd"]
    # Escaped as by b3sum: the hash follows the mark.
    assert keys == {rf"{file}:a\nb": "\\" + expected["a\nb"]}
    save_file({}, file)
    assert keys_of(file) == {}


def _safetensors(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def _tensor(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "read in place"),
        (b"\0" * 7, "not a safetensors file"),
        (struct.pack("<Q", 2**63), "not a safetensors file"),
        (_safetensors({"a": _tensor("I8", [3], 0, 3)}, b"12"), "not a safetensors file"),
        (_safetensors({"a": _tensor("I8", [3], 0, 3)}, b"1234"), "not a safetensors file"),
        (_safetensors({"a": _tensor("I8", [3], 1, 4)}, b"1234"), "not a safetensors file"),
        (_safetensors({"a": _tensor("I8", [2**62, 4], 0, 0)}, b""), "not a safetensors file"),
        (_safetensors({"a": _tensor("X8", [3], 0, 3)}, b"123"), "not a safetensors file"),
        (_safetensors({"a": _tensor("F6_E2M3", [4], 0, 3)}, b"123"), "dtype F6_E2M3 has no key"),
        (_safetensors({"a": _tensor("F4", [2, 3], 0, 3)}, b"123"), "an odd row of F4"),
    ],
)
def test_a_malformed_safetensors_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    assert reason in refusal(file)


@pytest.mark.parametrize("name", ["file", "file.npy", "file.safetensors"])
def test_missing_file_does_not_stop_the_others(tmp_path: Path, name: str) -> None:
    good = tmp_path / "good"
    good.write_bytes(b"foo")
    done = run(tmp_path / name, good)
    assert done.exit_code == 1
    assert done.stdout == f"{mmhash.key(b'foo').hex()}  {good}\n"
    assert done.stderr == f"mmhash: {tmp_path / name}: No such file or directory\n"


# Empty and small; on and beside the edges of a slice.
@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 16) + 1, 3 << 16])
def test_a_file_is_hashed_in_slices(file: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("mmhash.io.files.SLICE", 1 << 16)
    data = bytes(i % 251 for i in range(size))
    file.write_bytes(data)
    assert keys_of(file) == {str(file): mmhash.key(data).hex()}


def test_named_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = b"foo" * 100_000
    with ThreadPoolExecutor() as pool:
        pool.submit(pipe.write_bytes, content)
        assert keys_of(pipe) == {str(pipe): mmhash.key(content).hex()}


def test_pixels(tmp_path: Path) -> None:
    file = tmp_path / "image.png"
    image = Image.frombytes("RGB", (2, 3), bytes(range(18)))
    image.save(file)
    assert keys_of(file, "--of", "pixels") == {str(file): mmhash.key(image).hex()}
    assert keys_of(file) == {str(file): mmhash.key(file.read_bytes()).hex()}


# A header that is too short, of which Pillow tells by a ValueError, not as its decoders do.
SHORT_PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s1sI", 1, b"IHDR", b"\0", crc32(b"IHDR\0"))


def test_a_file_that_is_no_image_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "image.png"
    file.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    assert "not an image of JPEG" in refusal(file, "--of", "pixels")
    file.write_bytes(SHORT_PNG)
    assert "damaged" in refusal(file, "--of", "pixels")
    Image.effect_noise((64, 64), 50).save(file)
    file.write_bytes(file.read_bytes()[:-1000])
    assert "damaged" in refusal(file, "--of", "pixels")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert "decompression bomb" in refusal(file, "--of", "pixels")


def test_json_has_the_fields_of_each_engine(file: Path) -> None:
    file.write_bytes(b"foo")
    key = mmhash.key(b"foo")
    engines = {name: mmhash.engines.request_fields(key, name) for name in ("vllm", "sglang")}
    line = {"name": str(file), "key": key.hex()}
    for options, expected in (
        (["--engine", "vllm,sglang"], line | {"engines": engines}),
        ([], line),
    ):
        assert json.loads(run(file, "--json", *options).stdout) == expected
