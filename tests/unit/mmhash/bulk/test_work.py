"""An item has the library's key, or an error that gives the reason."""

import io
import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image

import mmhash
from mmhash.bulk import work
from mmhash.bulk.work import Options, Row, hash_files, hash_values
from mmhash.engines.registry import request_fields


def row_of(content: object, algorithm: str = "blake3") -> Row:
    nbytes = len(content) if isinstance(content, bytes) else 2 * 3 * 3
    kind = "bytes" if isinstance(content, bytes) else "image"
    digest = mmhash.digest(content, algorithm=algorithm).hex()
    return (kind, nbytes, digest, mmhash.key(content, algorithm=algorithm).hex(), None)


def error_of(path: str, **options: str) -> str:
    (row,) = hash_files([path], Options(**options))  # type: ignore[arg-type]
    assert row[:-1] == (None,) * (len(row) - 1)
    assert isinstance(row[-1], str)
    return row[-1]


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
@pytest.mark.parametrize("threads", [1, 2])
def test_files_of_all_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, threads: int
) -> None:
    monkeypatch.setattr(work, "BUFFER", 4096)
    monkeypatch.setattr(work, "SLICE", 4 * 4096)
    sizes = [0, 1, 4095, 4096, 4097, 3 * 4096, 4 * 4096, 4 * 4096 + 1, 9 * 4096]
    contents = [bytes(i % 251 for i in range(size)) for size in sizes]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    paths = [str(tmp_path / str(number)) for number in range(len(sizes))]
    options = Options(algorithm)  # type: ignore[arg-type]
    expected = [row_of(content, algorithm) for content in contents]
    assert hash_files(paths, options, threads) == expected
    scalars = pa.array(contents, pa.binary())
    assert hash_values(scalars, options, threads) == expected


def test_what_cannot_be_hashed_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    good, fifo = tmp_path / "good", tmp_path / "fifo"
    good.write_bytes(b"foo")
    os.mkfifo(fifo)  # to open it for reading would wait for a writer
    paths = [tmp_path / "missing", good, fifo, tmp_path, good]
    rows = hash_files(map(str, paths), Options())
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
    options = Options(of="pixels")
    assert hash_files([str(tmp_path / "image.png")], options) == [row_of(image)]
    found = hash_values(pa.array([encoded.getvalue(), b"no image", None], pa.binary()), options)
    assert found[0] == row_of(image)
    assert found[1][-1].startswith("NotAnImageError: not an image of JPEG")
    assert found[2][-1] == "InputValueError: the value is null"


def test_engines_have_a_column_each(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"foo")
    options = Options(engines=("sglang@0.5.23", "vllm@0.33.0"))
    (row,) = hash_files([str(tmp_path / "file")], options)
    said = dict(zip(options.columns, row, strict=True))
    key = mmhash.key(b"foo")
    for engine in options.engines:
        assert json.loads(said[engine]) == request_fields(key, engine)
    assert (said["key"], said["error"]) == (key.hex(), None)


def test_the_columns_of_engines_have_the_orientation(tmp_path: Path) -> None:
    image = Image.frombytes("RGB", (2, 3), bytes(range(18)))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "image.png", exif=exif)
    options = Options(of="pixels", engines=("vllm@0.23.0", "vllm@0.33.0"))
    (row,) = hash_files([str(tmp_path / "image.png")], options)
    said = dict(zip(options.columns, row, strict=True))
    assert said["key"] == mmhash.key(image).hex()
    for engine in options.engines:
        fields = request_fields(mmhash.key(image), engine, exif_orientation=6)
        assert json.loads(said[engine]) == fields
