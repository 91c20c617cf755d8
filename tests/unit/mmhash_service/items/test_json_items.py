"""Items in shared memory, hashed in place for callers of the Unix socket."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import mmhash
from mmhash.transport import SharedPool, SharedTensor
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.in_process import running
from tests.support.responses import items_of, problem_of

ARRAY = np.random.default_rng(0).standard_normal((40, 33)).astype(np.float32)


@pytest.fixture
def shared() -> Iterator[SharedTensor]:
    with SharedTensor.create(ARRAY) as tensor:
        yield tensor


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service on a Unix socket."""
    path = tmp_path_factory.mktemp("service") / "socket"
    with running(create_app(Settings(uds=path)), uds=path) as server:
        yield server.client


def post(client: httpx.Client, **item: Any) -> httpx.Response:
    return client.post("/hash", json={"items": [{"kind": "tensor", **item}]})


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_a_tensor_has_the_key_that_it_has_by_bytes(
    local: httpx.Client, shared: SharedTensor, algorithm: str
) -> None:
    body = {"items": [{"kind": "tensor", "shm": shared.handle()}]}
    (item,) = items_of(local.post("/hash", json=body, params={"algorithm": algorithm}))
    assert item["key"] == mmhash.key(ARRAY, algorithm=algorithm).hex()
    assert (item["dtype"], item["shape"]) == ("float32", [40, 33])


def test_plain_bytes_may_be_in_shared_memory(local: httpx.Client) -> None:
    with SharedTensor.create(b"abc") as segment:
        (item,) = items_of(post(local, kind="bytes", shm=segment.handle(), name="n"))
    assert (item["name"], item["key"]) == ("n", mmhash.key(b"abc").hex())


def test_a_bundle_answers_an_item_each(local: httpx.Client, shared: SharedTensor) -> None:
    found = items_of(post(local, shm=shared.handle(), counts=[10, 30], name="b"))
    parts = mmhash.split(ARRAY, counts=[10, 30])
    assert [item["key"] for item in found] == [mmhash.key(part).hex() for part in parts]


def test_a_lease_ends_with_the_response(local: httpx.Client) -> None:
    pool = SharedPool(1 << 20)
    try:
        handle = pool.lease(ARRAY).handle()
        (item,) = items_of(post(local, shm=handle))
        assert item["key"] == mmhash.key(ARRAY).hex()
        assert pool._ledger.leases() == 0
        assert problem_of(post(local, shm=handle)) == (422, "invalid-handle")
    finally:
        pool.close()


def test_the_item_does_not_contradict_the_handle(local: httpx.Client, shared: SharedTensor) -> None:
    for wrong in ({"kind": "bytes"}, {"dtype": "float32"}, {"shape": [40, 33]}):
        answer = post(local, **{"shm": shared.handle(), **wrong})
        assert problem_of(answer) == (422, "invalid-handle")
    for counts in ([1], 41):
        answer = post(local, shm=shared.handle(), counts=counts)
        assert problem_of(answer) == (422, "invalid-tensor")
    answer = post(local, shm=shared.handle(), counts=2**62)
    assert problem_of(answer) == (413, "too-many-items")


def test_a_wrong_handle_is_explained(local: httpx.Client, shared: SharedTensor) -> None:
    answer = post(local, shm=shared.handle() | {"host": "another"})
    (error,) = answer.json()["errors"]
    reason = "the handle comes from another host, or from before this host's last boot"
    assert error == {"pointer": "/items/0", "reason": reason}


def test_cuda_memory_has_its_own_setting(local: httpx.Client) -> None:
    assert problem_of(post(local, cuda_ipc={})) == (403, "in-place-off")


@pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu reads from a GPU")
def test_without_a_gpu_a_handle_of_cuda_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    lease = {"name": "mmhash-1-0000000000000000", "slot": 0, "generation": 1}
    handle = {"offset": 0, "nbytes": 4, "dtype": "uint8", "shape": [4], "lease": lease}
    with running(create_app(Settings(uds=path, cuda_ipc=True)), uds=path) as server:
        assert server.client.get("/info").json()["in_place"] == ["shm", "cuda_ipc"]
        assert problem_of(post(server.client, cuda_ipc=handle)) == (422, "invalid-handle")


def test_only_the_unix_socket_takes_handles(
    client: httpx.Client, local: httpx.Client, shared: SharedTensor
) -> None:
    assert problem_of(post(client, shm=shared.handle())) == (403, "in-place-off")
    assert client.get("/info").json()["in_place"] == []
    assert local.get("/info").json()["in_place"] == ["shm"]


def test_cuda_ipc_needs_a_unix_socket() -> None:
    with pytest.raises(ValueError, match="cuda_ipc needs uds"):
        Settings(cuda_ipc=True)
