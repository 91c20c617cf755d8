"""A pickle in the place of a tensor, an image or a handle, which runs a program when it is opened.

Nothing here unpickles: what is no safetensors file or image is refused, and other bytes are bytes.
"""

import ast
import base64
import pickle
from pathlib import Path
from typing import Any

import pytest

import mmhash
from mmhash.transport import IpcTensor, SharedTensor
from tests.support.responses import items_of, refusal_of

ROOT = Path(__file__).parents[2]


class _Bomb:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


@pytest.fixture
def bomb(tmp_path: Path) -> Any:
    yield pickle.dumps(_Bomb(tmp_path / "it ran"))
    assert not (tmp_path / "it ran").exists()


def test_it_does_run_where_it_is_opened(bomb: bytes, tmp_path: Path) -> None:
    pickle.loads(bomb)
    (tmp_path / "it ran").unlink()


@pytest.mark.parametrize(
    ("content_type", "query", "problem"),
    [
        ("application/x-safetensors", {}, "damaged-safetensors"),
        ("image/png", {"of": "pixels"}, "unsupported-media-type"),
        ("application/json", {}, "invalid-json"),
        ("application/x-pickle", {}, "unsupported-media-type"),
        ("application/x-pytorch", {}, "unsupported-media-type"),
        ("application/octet-stream", {"dtype": "object", "shape": "1"}, "invalid-tensor"),
        ("application/octet-stream", {"dtype": "float16", "shape": "1"}, "invalid-tensor"),
    ],
)
def test_it_is_refused(
    server: Any, bomb: bytes, content_type: str, query: Any, problem: str
) -> None:
    assert refusal_of(server.hash(bomb, content_type, **query)) == problem


def test_as_bytes_it_is_bytes(server: Any, bomb: bytes) -> None:
    assert items_of(server.hash(bomb))[0]["key"] == mmhash.key(bomb).hex()


@pytest.mark.parametrize("field", ["shm", "cuda_ipc"])
def test_in_a_handle_it_is_refused(server: Any, bomb: bytes, field: str) -> None:
    text = base64.b64encode(bomb).decode()
    item = {"kind": "tensor", field: {"name": text, "lease": text, "pickle": text}}
    assert refusal_of(server.hash_json(item)) == "in-place-off"
    opened = SharedTensor if field == "shm" else IpcTensor
    with pytest.raises(mmhash.TransportError):
        opened.open(item[field])


def test_no_module_unpickles() -> None:
    opening = {"load", "loads", "Unpickler"}
    modules = {"pickle", "marshal", "shelve", "torch", "np", "numpy"}
    for path in [*(ROOT / "mmhash").rglob("*.py"), *(ROOT / "service").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in opening:
                assert ast.unparse(node.value) not in modules, path
            if isinstance(node, ast.ImportFrom):
                assert node.module not in modules - {"torch", "numpy"}, path
