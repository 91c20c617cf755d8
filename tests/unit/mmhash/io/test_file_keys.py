from pathlib import Path

import pytest
from PIL import Image

import mmhash


def test_bytes_and_pixels(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    Image.new("RGB", (8, 8), "navy").save(path)
    content, secret = path.read_bytes(), bytes(range(32))
    assert mmhash.digest_file(path) == mmhash.digest(content)
    assert mmhash.digest_file(str(path), algorithm="xxh3") == mmhash.digest(
        content, algorithm="xxh3"
    )
    assert mmhash.key_file(path, tenant=secret) == mmhash.key(content, tenant=secret)
    with Image.open(path) as image:
        assert mmhash.key_file(path, of="pixels", tenant=secret) == mmhash.key(image, tenant=secret)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert mmhash.key_file(path) == mmhash.key(b"")


def test_refusals(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"no image")
    with pytest.raises(mmhash.InputTypeError, match="not an image"):
        mmhash.key_file(path, of="pixels")
    with pytest.raises(mmhash.InputValueError, match="of must be bytes or pixels"):
        mmhash.key_file(path, of="text")
    with pytest.raises(FileNotFoundError):
        mmhash.key_file(tmp_path / "none")
