"""An item has the library's key, or an error that gives the reason."""

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from PIL import Image

import mmhash
from mmhash.bulk import items
from mmhash.bulk.items import AHEAD, BulkOptions, Row, hash_files, hash_values
from mmhash.engines.registry import request_fields
from tests.support.descriptors import descriptors_below


def row_of(content: object, algorithm: str = "blake3") -> Row:
    nbytes = len(content) if isinstance(content, bytes) else 2 * 3 * 3
    kind = "bytes" if isinstance(content, bytes) else "image"
    digest = mmhash.digest(content, algorithm=algorithm).hex()
    return (kind, nbytes, digest, mmhash.key(content, algorithm=algorithm).hex(), None)


def error_of(path: str, **options: str) -> str:
    (row,) = hash_files([path], BulkOptions(**options))  # type: ignore[arg-type]
    assert row[:-1] == (None,) * (len(row) - 1)
    assert isinstance(row[-1], str)
    return row[-1]


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_files_of_all_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setattr(items, "BUFFER", 4096)
    sizes = [0, 1, 4095, 4096, 4097, 3 * 4096, 9 * 4096]
    contents = [bytes(i % 251 for i in range(size)) for size in sizes]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    paths = [str(tmp_path / str(number)) for number in range(len(sizes))]
    options = BulkOptions(algorithm)  # type: ignore[arg-type]
    expected = [row_of(content, algorithm) for content in contents]
    assert hash_files(paths, options) == expected
    scalars = pa.array(contents, pa.binary())
    assert hash_values(scalars, options) == expected


def test_an_item_that_cannot_be_hashed_has_an_error_in_its_row(tmp_path: Path) -> None:
    good, fifo = tmp_path / "good", tmp_path / "fifo"
    good.write_bytes(b"foo")
    os.mkfifo(fifo)  # to open it for reading would wait for a writer
    paths = [tmp_path / "missing", good, fifo, tmp_path, good]
    rows = hash_files(map(str, paths), BulkOptions())
    assert [row[-1] for row in rows] == [
        "FileNotFoundError: No such file or directory",
        None,
        "InputTypeError: not a regular file",
        "InputTypeError: not a regular file",
        None,
    ]
    assert rows[1] == rows[4] == row_of(b"foo")
    assert re.fullmatch("ValueError: .*embedded null (byte|character in path)", error_of("nul\0"))
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    Path(odd).write_bytes(b"foo")
    assert error_of(odd).startswith("UnicodeEncodeError: 'utf-8' codec can't encode")
    assert error_of(str(good), of="pixels").startswith("NotAnImageError: not an image of JPEG")


def test_pixels(tmp_path: Path) -> None:
    image = Image.frombytes("RGB", (2, 3), bytes(range(18)))
    image.save(tmp_path / "image.png")
    encoded = io.BytesIO()
    image.save(encoded, "BMP")
    options = BulkOptions(of="pixels")
    assert hash_files([str(tmp_path / "image.png")], options) == [row_of(image)]
    found = hash_values(pa.array([encoded.getvalue(), b"no image", None], pa.binary()), options)
    assert found[0] == row_of(image)
    assert found[1][-1].startswith("NotAnImageError: not an image of JPEG")
    assert found[2][-1] == "InputValueError: the value is null"


def test_the_columns_of_engines_have_the_orientation(tmp_path: Path) -> None:
    image = Image.frombytes("RGB", (2, 3), bytes(range(18)))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "image.png", exif=exif)
    options = BulkOptions(of="pixels", engines=("vllm@0.23.0", "vllm@0.33.0"))
    (row,) = hash_files([str(tmp_path / "image.png")], options)
    said = dict(zip(options.columns, row, strict=True))
    assert said["key"] == mmhash.key(image).hex()
    for engine in options.engines:
        fields = request_fields(mmhash.key(image), engine, exif_orientation=6)
        assert json.loads(said[engine]) == fields


def test_a_limited_number_of_files_is_open(tmp_path: Path) -> None:
    paths = [str(tmp_path / str(number)) for number in range(3 * AHEAD)]
    for path in paths:
        Path(path).write_bytes(path.encode())

    def counted() -> Iterator[str]:
        for path in paths:
            assert descriptors_below(str(tmp_path)) <= AHEAD + 1
            yield path

    rows = hash_files(counted(), BulkOptions())
    assert [row[3] for row in rows] == [mmhash.key(path.encode()).hex() for path in paths]
    with pytest.raises(ZeroDivisionError):  # of the paths: the files that are open are closed
        hash_files((paths[int(1 / (2 - number))] for number in range(3)), BulkOptions())
    assert descriptors_below(str(tmp_path)) == 0


@pytest.mark.parametrize("of", ["bytes", "pixels"])
def test_a_device_is_not_opened(tmp_path: Path, of: Literal["bytes", "pixels"]) -> None:
    """To open one can have an effect: /dev/ptmx makes a terminal."""
    path = tmp_path / "device"
    path.symlink_to("/dev/ptmx")
    opened = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
    (row,) = hash_files([str(path)], BulkOptions(of=of))
    assert row[-1] == "InputTypeError: not a regular file"
    assert str(path) not in opened
