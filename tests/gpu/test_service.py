"""The service hashes what lies on a GPU of another process, where it lies."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import torch

import mmhash
from mmhash.transport import FeaturePool
from tests.support.service import serving

pytest.importorskip("fastapi")
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    path = tmp_path_factory.mktemp("service") / "socket"
    with (
        serving("--uds", str(path), settings={"cuda_ipc": True}) as service,
        service.new_client() as client,
    ):
        yield client


@pytest.fixture(params=range(min(2, torch.cuda.device_count())))
def pool(request: pytest.FixtureRequest) -> Iterator[FeaturePool]:
    made = FeaturePool(request.param)
    with torch.cuda.device(made.device):
        yield made
    made.close()


def post(client: httpx.Client, **item: Any) -> httpx.Response:
    return client.post("/hash", json={"items": [{"kind": "tensor", **item}]})


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_a_tensor_has_its_key(client: httpx.Client, pool: FeaturePool, algorithm: str) -> None:
    tensor = torch.randint(0, 255, (7, 1 << 20), dtype=torch.uint8, device="cuda").view(torch.int16)
    body = {"items": [{"kind": "tensor", "cuda_ipc": pool.lease(tensor).handle()}]}
    answer = client.post("/hash", params={"algorithm": algorithm}, json=body)
    (item,) = answer.raise_for_status().json()["items"]
    assert item["key"] == mmhash.key(tensor, algorithm=algorithm).hex()
    assert (item["dtype"], item["shape"]) == ("int16", [7, 1 << 19])


def test_a_bundle_has_its_items_keys(client: httpx.Client, pool: FeaturePool) -> None:
    tensor = torch.randn(10, 300, device="cuda").to(torch.bfloat16)
    answer = post(client, cuda_ipc=pool.lease(tensor).handle(), counts=[1, 6, 3])
    found = [item["key"] for item in answer.raise_for_status().json()["items"]]
    assert found == [key.hex() for key in mmhash.keys(mmhash.split(tensor, counts=[1, 6, 3]))]


def test_a_lease_that_is_over_is_refused(client: httpx.Client, pool: FeaturePool) -> None:
    handle = pool.lease(torch.ones(1000, device="cuda")).handle()
    assert post(client, cuda_ipc=handle).status_code == 200  # and acknowledged
    pool._ledger.leases()  # takes back what was acknowledged
    answer = post(client, cuda_ipc=handle)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:mmhash:problem:invalid-handle")


def test_it_is_ready_and_tells_its_devices(client: httpx.Client) -> None:
    assert client.get("/ready").status_code == 200
    devices = client.get("/info").json()["devices"]
    assert devices[:2] == ["cpu", "cuda:0"]


@pytest.mark.alone
def test_another_process_needs_no_memory_of_the_tensor(
    client: httpx.Client, pool: FeaturePool
) -> None:
    tensor = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    assert post(client, cuda_ipc=pool.lease(tensor[:1000]).handle()).status_code == 200
    lease = pool.lease(tensor).handle()
    before = torch.cuda.mem_get_info()[0]
    assert post(client, cuda_ipc=lease).status_code == 200
    assert before - torch.cuda.mem_get_info()[0] < 32 << 20
