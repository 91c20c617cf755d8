"""Items in shared memory: hashed where they lie, for callers who show that they share the host."""

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

import mmhash
from mmhash.transport import SharedTensor
from mmhash_service.app import create_app
from mmhash_service.settings import Settings
from tests.support.in_process import running
from tests.support.responses import items_of, problem_of

ARRAY = np.random.default_rng(0).standard_normal((40, 33)).astype(np.float32)


@pytest.fixture
def shared() -> Iterator[SharedTensor]:
    with SharedTensor.create(ARRAY) as tensor:
        yield tensor


def post(client: httpx.Client, proof: Any, **item: Any) -> httpx.Response:
    body = {"items": [{"kind": "tensor", **item}], "proof": proof}
    return client.post("/hash", json={name: part for name, part in body.items() if part})


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_a_tensor_has_the_key_that_it_has_by_bytes(
    client: httpx.Client, proof: Any, shared: SharedTensor, algorithm: str
) -> None:
    body = {"items": [{"kind": "tensor", "shm": shared.handle()}], "proof": proof}
    (item,) = items_of(client.post("/hash", json=body, params={"algorithm": algorithm}))
    assert item["key"] == mmhash.key(ARRAY, algorithm=algorithm).hex()
    assert (item["dtype"], item["shape"]) == ("float32", [40, 33])


def test_plain_bytes_may_lie_there_too(client: httpx.Client, proof: Any) -> None:
    with SharedTensor.create(b"abc") as segment:
        (item,) = items_of(post(client, proof, kind="bytes", shm=segment.handle(), name="n"))
    assert (item["name"], item["key"]) == ("n", mmhash.key(b"abc").hex())


def test_a_bundle_answers_an_item_each(
    client: httpx.Client, proof: Any, shared: SharedTensor
) -> None:
    found = items_of(post(client, proof, shm=shared.handle(), counts=[10, 30], name="b"))
    parts = mmhash.split(ARRAY, counts=[10, 30])
    assert [item["key"] for item in found] == [mmhash.key(part).hex() for part in parts]


def test_a_digest_that_the_handle_carries_is_not_believed(
    client: httpx.Client, proof: Any, shared: SharedTensor
) -> None:
    shared.attach_digest(mmhash.digest(b"something else"))
    handle = shared.handle()
    assert handle["digests"]
    (item,) = items_of(post(client, proof, shm=handle))
    assert item["key"] == mmhash.key(ARRAY).hex()


def test_who_does_not_share_the_host_is_told_so(
    client: httpx.Client, proof: Any, shared: SharedTensor
) -> None:
    wrong_nonce = proof | {"nonce": "00" * 32}
    short_nonce = proof | {"nonce": proof["nonce"][:32]}
    other_host = proof | {"shm": proof["shm"] | {"host": "another"}}
    with SharedTensor.create(bytes(32)) as closed:
        gone = {"nonce": "00" * 32, "shm": closed.handle()}
    for wrong in (None, wrong_nonce, short_nonce, other_host, gone):
        answer = post(client, wrong, shm=shared.handle())
        assert problem_of(answer) == (422, "other-host")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "mmhash-1-1-0000000000000000"},
        {"name": "../etc/passwd"},
        {"nbytes": 2**62},
        {"offset": 2**62},
        {"shape": [1]},
        {"more": 1},
    ],
)
def test_a_handle_that_is_amiss_is_refused(
    client: httpx.Client, proof: Any, shared: SharedTensor, change: Any
) -> None:
    answer = post(client, proof, shm=shared.handle() | change)
    assert problem_of(answer) == (422, "invalid-handle")


def test_the_item_does_not_contradict_the_handle(
    client: httpx.Client, proof: Any, shared: SharedTensor
) -> None:
    for wrong in ({"kind": "bytes"}, {"dtype": "float32"}, {"shape": [40, 33]}):
        answer = post(client, proof, **{"shm": shared.handle(), **wrong})
        assert problem_of(answer) == (422, "invalid-handle")
    for counts in ([1], 41):
        answer = post(client, proof, shm=shared.handle(), counts=counts)
        assert problem_of(answer) == (422, "invalid-tensor")
    answer = post(client, proof, shm=shared.handle(), counts=2**62)
    assert problem_of(answer) == (413, "too-many-items")


def test_cuda_memory_has_a_switch_of_its_own(client: httpx.Client, proof: Any) -> None:
    assert problem_of(post(client, proof, cuda_ipc={})) == (403, "in-place-off")


def test_nothing_is_opened_unless_switched_on(proof: Any, shared: SharedTensor) -> None:
    with running(create_app(Settings())) as server:
        answer = post(server.client, proof, shm=shared.handle())
    assert problem_of(answer) == (403, "in-place-off")
