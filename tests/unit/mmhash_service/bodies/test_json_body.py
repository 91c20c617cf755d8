"""JSON items of `POST /hash`: base64 and data: URLs, bundles, and what is refused."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

import mmhash
from mmhash_service.problems.catalogue import PROBLEMS
from tests.support.responses import items_of, problem_of

BUNDLE = np.arange(48, dtype=np.float16).reshape(4, 12)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def tensor(**changes: Any) -> dict[str, Any]:
    item = {"kind": "tensor", "dtype": "float16", "shape": [4, 12], "data": b64(BUNDLE.tobytes())}
    return {name: value for name, value in (item | changes).items() if value is not None}


def post(client: httpx.Client, *items: Any, **query: str) -> httpx.Response:
    return client.post("/hash", json={"items": items}, params=query)


@pytest.mark.parametrize(
    ("how", "parts"),
    [
        ({"counts": [1, 3]}, [1, 3]),
        ({"counts": [0, 4, 0]}, [0, 4, 0]),
        ({"counts": 4}, [1, 1, 1, 1]),
        ({"grids": [[1, 1, 1], [1, 3, 1]]}, [1, 3]),
        ({"grids": [[2, 1], [1, 2]]}, [2, 2]),
    ],
)
def test_a_bundle_answers_an_item_each(
    client: httpx.Client, how: dict[str, Any], parts: list[int]
) -> None:
    found = items_of(post(client, tensor(name="b", **how)))
    views = mmhash.split(BUNDLE, counts=parts)
    assert [item["key"] for item in found] == [mmhash.key(view).hex() for view in views]
    assert [item["shape"] for item in found] == [list(view.shape) for view in views]
    assert [item["name"] for item in found] == [f"b[{at}]" for at in range(len(parts))]


@pytest.mark.parametrize("nbytes", [786_432, 786_433, 786_434, 1_600_000])
def test_long_base64_is_decoded_in_steps(client: httpx.Client, nbytes: int) -> None:
    data = bytes(at % 251 for at in range(nbytes))
    (item,) = items_of(post(client, {"kind": "bytes", "data": b64(data)}))
    assert item["key"] == mmhash.key(data).hex()


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (tensor(dtype=None), "invalid-tensor"),
        (tensor(shape=None), "invalid-tensor"),
        (tensor(kind="bytes"), "invalid-tensor"),
        (tensor(dtype="f16"), "invalid-tensor"),
        (tensor(shape=[4, 13]), "invalid-tensor"),
        (tensor(shape=[2**62] * 32), "invalid-tensor"),
        (tensor(counts=[1, 2]), "invalid-tensor"),
        (tensor(counts=3), "invalid-tensor"),
        (tensor(counts=[4], grids=[[2, 2]]), "invalid-tensor"),
        (tensor(grids=[[2, 1], [1, 1, 2]]), "invalid-tensor"),
        (tensor(shape=[], data=b64(bytes(2)), counts=[1]), "invalid-tensor"),
        ({"kind": "bytes", "data": "", "counts": [1]}, "invalid-tensor"),
        ({"kind": "bytes"}, "invalid-json"),
        ({"kind": "bytes", "data": "", "url": "data:;base64,"}, "invalid-json"),
        ({"kind": "bytes", "data": "A"}, "invalid-base64"),
        ({"kind": "bytes", "data": "AA=A"}, "invalid-base64"),
        ({"kind": "bytes", "data": "AB\nCD"}, "invalid-base64"),
        ({"kind": "bytes", "data": "\u00e9AAA"}, "invalid-base64"),
        ({"kind": "bytes", "data": "AA==" * (1 << 19)}, "invalid-base64"),
        ({"kind": "bytes", "url": "http://127.0.0.1/"}, "url-off"),
        ({"kind": "bytes", "url": "file:///etc/passwd"}, "invalid-url"),
        ({"kind": "bytes", "url": "data:;base64"}, "invalid-url"),
        ({"kind": "image", "data": b64(b"no image")}, "damaged-media"),
        ({"kind": "list", "data": ""}, "invalid-json"),
        ({"kind": "bytes", "dat": ""}, "invalid-json"),
        ({"kind": "bytes", "data": 1}, "invalid-json"),
        (tensor(shape=["4", 12]), "invalid-json"),
        (tensor(shape=[-4, 12]), "invalid-json"),
        (tensor(shape=[2**63]), "invalid-json"),
        (tensor(shape=[1] * 33), "invalid-json"),
        ({"kind": "bytes", "data": "", "name": "x" * 1025}, "invalid-json"),
        (None, "invalid-json"),
        ([], "invalid-json"),
    ],
)
def test_a_malformed_item_is_refused(client: httpx.Client, item: Any, problem: str) -> None:
    assert problem_of(post(client, item)) == (PROBLEMS[problem].status, problem)


@pytest.mark.parametrize(
    "item",
    [
        {"kind": "image", "data": ""},
        {"kind": "image", "url": "data:,"},
        {"kind": "bytes", "url": "data:image/png;base64,"},
        {"kind": "bytes", "url": "DATA:Video/mp4,"},
    ],
)
def test_empty_media_is_refused(client: httpx.Client, item: Any) -> None:
    assert problem_of(post(client, item)) == (422, "damaged-media")


def test_a_body_of_json_is_no_tensor(client: httpx.Client) -> None:
    assert problem_of(post(client, tensor(), dtype="uint8", shape="1")) == (422, "invalid-tensor")
