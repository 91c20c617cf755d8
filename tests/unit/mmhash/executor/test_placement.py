"""Placement: by the measured rates, unless it is pinned."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import mmhash
from mmhash import cuda
from mmhash.errors import DeviceError, InputTypeError, InputValueError
from mmhash.executor import placement, rates
from mmhash.executor.item_cost import ItemCost, cost_of, identity_of
from mmhash.executor.placement import Placement, Target, hash_on
from mmhash.executor.rates import Rates

FAST_GPU = Rates(
    {"blake3": 5e9, "xxh3": 20e9}, 5e-6, {"blake3": 15e9, "xxh3": 15e9}, gpu_call=100e-6
)


@pytest.fixture(autouse=True)
def _no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MMHASH_DEVICE", raising=False)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("MMHASH_CACHE_DIR", str(tmp_path))
    rates.rates.cache_clear()
    yield tmp_path
    rates.rates.cache_clear()


def placed(known: Rates, device: str = "auto", threads: int = 1) -> Placement:
    made = Placement(device, threads)
    made._rates = known
    return made


def test_inline_is_a_few_microseconds_of_work() -> None:
    rules = placed(Rates({"blake3": 1e9, "xxh3": 4e9}, call=5e-6))
    assert rules.is_inline(ItemCost(10_000), "blake3")
    assert not rules.is_inline(ItemCost(10_001), "blake3")
    assert rules.is_inline(ItemCost(40_000), "xxh3")
    assert rules.is_inline(ItemCost(9, parts=2), "blake3")
    assert not rules.is_inline(ItemCost(9, parts=4), "blake3")
    assert not rules.is_inline(ItemCost(9, in_place=False), "blake3")
    assert not rules.is_inline(ItemCost(9, device=0), "blake3")


def test_host_data_goes_through_the_gpu_only_where_that_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "gpu_in_use", lambda: 0)
    assert placed(FAST_GPU).target(ItemCost(20 << 20), "blake3") == Target(gpu=0)
    assert (
        placed(FAST_GPU).target(ItemCost(1 << 19), "blake3") == Target()
    )  # the call alone costs more
    assert placed(FAST_GPU).target(ItemCost(20 << 20), "xxh3") == Target()
    assert placed(FAST_GPU, threads=4).target(ItemCost(20 << 20), "blake3") == Target()
    assert placed(FAST_GPU, device="cpu").target(ItemCost(20 << 20), "blake3") == Target()
    assert placed(rates.ASSUMED).target(ItemCost(20 << 20), "blake3") == Target()
    assert placed(FAST_GPU).target(ItemCost(20 << 20, in_place=False), "blake3") == Target()


def test_a_device_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "why_unavailable", lambda _: None)
    assert placed(FAST_GPU, "cuda:1").target(ItemCost(9999), "xxh3") == Target(gpu=1)
    assert placed(FAST_GPU, "cuda").target(ItemCost(9999), "xxh3") == Target(gpu=0)
    monkeypatch.setenv("MMHASH_DEVICE", "cuda:2")
    assert placed(FAST_GPU).target(ItemCost(9999), "xxh3") == Target(gpu=2)
    assert placed(FAST_GPU, "cpu").target(ItemCost(9999), "xxh3") == Target()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(DeviceError):
        Placement("cuda", 1)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "", "CPU"])
def test_a_device_that_is_none(device: str) -> None:
    with pytest.raises(InputValueError, match="device is auto, cpu, cuda or cuda:<number>"):
        Placement(device, 1)
    with pytest.raises(InputTypeError, match="device is a str"):
        Placement(None, 1)  # type: ignore[arg-type]


def test_a_variable_that_is_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_DEVICE", "gpu")
    with pytest.raises(InputValueError, match="'gpu'"):
        Placement("auto", 1)
    Placement("cpu", 1)


def test_through_a_gpu_the_key_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        placement,
        "digest_on_gpu",
        lambda _, data, algorithm: mmhash.digest(data, algorithm=algorithm),
    )
    item = np.arange(12, dtype=np.float32).reshape(3, 4)
    for tenant in (None, bytes(32)):
        assert hash_on(Target(gpu=0), item, "xxh3", tenant, 1) == mmhash.key(
            item, algorithm="xxh3", tenant=tenant
        )


def test_rates_are_measured_once_and_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rates.rates(None)
    assert min(first.cpu_rates.values()) > 1e6
    (file,) = cache.iterdir()
    assert json.loads(file.read_text()) == first._asdict()
    rates.rates.cache_clear()
    monkeypatch.setattr(rates, "measure", lambda _: pytest.fail("measured again"))
    assert rates.rates(None) == first


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"speed": 1}',
        '{"blake3": 1, "xxh3": 1, "call": 1}',
        '{"cpu_rates": [], "call": 1}',
        '{"cpu_rates": {"blake3": 1}, "call": 1}',
        '{"cpu_rates": {"blake3": 0, "xxh3": 1}, "call": 1}',
        '{"cpu_rates": {"blake3": "x", "xxh3": 1}, "call": 1}',
        '{"cpu_rates": {"blake3": 1, "xxh3": 1}, "call": 1, "gpu_rates": {"blake3": 1}}',
    ],
)
def test_a_damaged_file_is_measured_anew(cache: Path, content: str) -> None:
    rates.rates(None)
    (file,) = cache.iterdir()
    file.write_text(content)
    rates.rates.cache_clear()
    assert rates.rates(None).cpu("blake3") > 1e6
    assert json.loads(file.read_text())["cpu_rates"]["blake3"] > 1e6


def test_without_a_cache_directory_it_measures(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMHASH_CACHE_DIR", "/proc/no/such/place")
    assert rates.rates(None).cpu("blake3") > 1e6
    assert not list(cache.iterdir())


def test_env_tells_the_rates(cache: Path) -> None:
    facts = dict(placement.facts())
    assert facts["device"] == "auto"
    assert "GB/s a thread, inline to" in facts["blake3 rate"]


def test_what_items_weigh() -> None:
    array = np.zeros((3, 4), np.float32)
    assert cost_of(b"abc") == ItemCost(3)
    assert (
        cost_of(array) == cost_of(torch.zeros(3, 4)) == cost_of(memoryview(array)) == ItemCost(48)
    )
    assert cost_of([array, [b"abc"]]) == ItemCost(51, parts=4)
    assert cost_of(torch.zeros(3, device="meta")).in_place is False
    assert cost_of(torch.zeros(3).to_sparse()).nbytes >= 0
    released = memoryview(b"abc")
    released.release()
    for nothing in (None, "text", 5, object(), released):
        assert cost_of(nothing) == ItemCost(0)


def test_an_endless_list_is_weighed() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert cost_of(endless).nbytes == 0


def test_a_handle_is_not_opened_to_be_weighed() -> None:
    class Handle:
        nbytes = 7

        def __mmhash_view__(self) -> None:
            pytest.fail("opened")

    assert cost_of(Handle()) == ItemCost(7, in_place=False)
    assert cost_of([Handle()]).in_place is False


def test_identities() -> None:
    array = np.zeros(8, np.uint8)
    tensor = torch.from_numpy(array)
    assert identity_of(array) == identity_of(array[:])
    assert identity_of(tensor) == identity_of(tensor.view(8))
    others = [array, array[1:], array[::2], array.view(np.int8), array.reshape(2, 4), tensor,
              tensor.view(torch.int8), np.ma.masked_array(array), torch.nn.Parameter(torch.ones(2)),
              torch.zeros(3, device="meta"), torch.zeros(3, device="meta")]  # fmt: skip
    assert len({identity_of(other) for other in others}) == len(others)
