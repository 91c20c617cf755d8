"""A pickle instead of a tensor, an image or a handle, to run a program when it is opened.

Nothing is unpickled: it is a damaged file or image, or plain bytes.
"""

import pickle
from pathlib import Path
from typing import Any

import pytest

import mmhash
from tests.support.responses import items_of, refusal_of


class _Bomb:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


@pytest.fixture
def bomb(tmp_path: Path) -> Any:
    yield pickle.dumps(_Bomb(tmp_path / "it ran"))
    assert not (tmp_path / "it ran").exists()


@pytest.mark.parametrize(
    ("content_type", "query", "problem"),
    [
        ("application/x-safetensors", {}, "damaged-safetensors"),
        ("image/png", {"of": "pixels"}, "damaged-media"),
        ("application/json", {}, "invalid-json"),
        ("application/x-pickle", {}, "unsupported-media-type"),
        ("application/x-pytorch", {}, "unsupported-media-type"),
        ("application/octet-stream", {"dtype": "object", "shape": "1"}, "invalid-tensor"),
        ("application/octet-stream", {"dtype": "float16", "shape": "1"}, "invalid-tensor"),
    ],
)
def test_a_pickle_is_refused(
    server: Any, bomb: bytes, content_type: str, query: Any, problem: str
) -> None:
    assert refusal_of(server.hash(bomb, content_type, **query)) == problem


def test_a_pickle_sent_as_bytes_is_hashed_as_bytes(server: Any, bomb: bytes) -> None:
    assert items_of(server.hash(bomb))[0]["key"] == mmhash.key(bomb).hex()
