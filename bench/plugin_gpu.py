"""Measures the work that the plugin takes off SGLang's scheduler: hashing features by CUDA IPC.

`python -m bench.plugin_gpu [--sglang WHEEL]`: by default the wheel is downloaded from the package
registry. The tokenizer puts features of real sizes into SGLang's own CUDA IPC pool: without the
plugin, with MMHASH_PLUGIN=features, and with `keys,features`. A second process is the scheduler. As
SGLang's scheduler does, it takes the features out of the pool and calls `set_pad_value` of each
item. All pad values are compared with the CPU's.
"""

import argparse
import asyncio
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

import mmhash
from bench.support.measure import keep
from bench.support.peers import sglang_gpu_hash, sglang_ipc
from mmhash.engines import sglang
from mmhash.plugin.sglang import Plugin

MB = 10**6
CASES = [(1, MB), (1, 5 * MB), (1, 20 * MB), (1, 80 * MB), (64, MB), (64, 5 * MB), (64, 20 * MB)]
POOL_BYTES = 24 * 10**9
"""Room for several rounds: the pool notices only 20 times a second that features were read."""
ROUNDS = 21
PATCH = 1176
"""The number of values in a patch of Qwen-VL's features."""

Hash = Callable[[torch.Tensor], int]


class Item:
    """The part of SGLang's MultimodalDataItem that computes its name."""

    modality = SimpleNamespace(name="IMAGE")
    precomputed_embeddings = None

    def __init__(self, feature: Any, own: Hash) -> None:
        self.feature, self._own = feature, own
        self.hash: int | None = None
        self.pad_value: int | None = None
        self.pad_values: list[int] = []

    def set_hash(self, value: int) -> None:
        """Derive the pad values from a hash."""
        self.hash, self.pad_values = value, sglang.pad_values(value)
        self.pad_value = self.pad_values[0]

    def set_pad_value(self) -> None:
        """Derive the pad values from the item's hash, or from its feature's if it has none."""
        if self.pad_value is None:
            if self.hash is None:
                self.hash = self._own(torch.concat([self.feature.flatten()]))
            self.set_hash(self.hash)


class Processor:
    """The part of SGLang's processor that follows the computation of features."""

    def __init__(self, pool: Any, own: Hash) -> None:
        self._pool, self._own = pool, own

    async def process_mm_data_async(self, *, request_obj: Any) -> Any:
        """Return the items of a request. Their features are in the pool."""
        items = [Item(feature, self._own) for feature in request_obj.features]
        items = self._postprocess_mm_items_before_transport(items)
        return SimpleNamespace(mm_items=self._prepare_mm_items_for_transport(items))

    def _postprocess_mm_items_before_transport(self, items: list[Item]) -> list[Item]:
        return items

    def _prepare_mm_items_for_transport(self, items: list[Item]) -> list[Item]:
        for item in items:
            item.feature = self._pool.wrap_tensor(item.feature, use_pool_handle_cache=True)
            assert item.feature is not None, "the pool is full"
        return items


class Point(NamedTuple):
    """The medians of one case, in microseconds."""

    items: int
    nbytes: int
    plugin: str
    tokenizer_us: float
    """The time from features on the GPU to handles of the pool, with names if there is a plugin."""
    scheduler_us: float
    """The time in which the scheduler names the items."""


class Tokenizer:
    """The first process. It names features, and puts them into the pool."""

    def __init__(self, features: str, pool: Any, own: Hash) -> None:
        self._manager = SimpleNamespace(mm_processor=Processor(pool, own))
        self._plugin = Plugin(frozenset(features.split(","))) if features else None

    async def items_of(self, batch: list[torch.Tensor]) -> list[Item]:
        """Return the items of a request."""
        request = SimpleNamespace(features=batch, contains_mm_input=lambda: True)
        if self._plugin is None:
            result = await self._process(self._manager, request)
        else:
            result = await self._plugin.tokenize(self._process, self._manager, request)
        return list(result.mm_items)

    async def _process(self, manager: Any, request: Any) -> Any:
        return await manager.mm_processor.process_mm_data_async(request_obj=request)


def schedule(wheel: Path | None, requests: Connection) -> None:
    """Name the items of each request. The second process runs this."""
    own = sglang_gpu_hash(wheel)
    sglang_ipc(wheel)  # import it before handles are read
    requests.send("ready")
    while (request := requests.recv()) is not None:
        items = []
        for handle, hash_ in request:
            items.append(Item(handle.reconstruct_on_target_device(0), own))
            if hash_ is not None:
                items[-1].set_hash(hash_)
        torch.cuda.synchronize()
        unnamed = sum(item.hash is None for item in items)
        start = perf_counter()
        for item in items:
            item.set_pad_value()
        seconds = perf_counter() - start
        requests.send((seconds, unnamed, [item.pad_values for item in items]))


def expected_pads(features: str, batch: list[torch.Tensor]) -> list[list[int]]:
    """Return the pad values that the CPU computes: the engine's own, or the keys'."""
    on_cpu = [feature.cpu() for feature in batch]
    if "keys" in features:
        return [sglang.pad_values(key.u64) for key in mmhash.keys(on_cpu)]
    return [sglang.pad_values(sglang.gpu_hash(feature)) for feature in on_cpu]


def measure(
    features: str, tokenizer: Tokenizer, scheduler: Connection, batch: list[torch.Tensor]
) -> Point:
    """Send a batch through the pool again and again, and check its pad values."""
    expected = expected_pads(features, batch)
    times = []
    with asyncio.Runner() as runner:
        for _ in range(ROUNDS):
            torch.cuda.synchronize()
            start = perf_counter()
            items = runner.run(tokenizer.items_of(batch))
            seconds = perf_counter() - start
            scheduler.send([(item.feature, item.hash) for item in items])
            in_scheduler, unnamed, pad_values = scheduler.recv()
            assert pad_values == expected
            assert unnamed == (0 if features else len(batch))
            times.append((seconds, in_scheduler))
    medians = [median(each) * 1e6 for each in zip(*times, strict=True)]
    return Point(len(batch), batch[0].nbytes, features, *medians)


def main() -> None:
    """Check and measure each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sglang", type=Path, help="the wheel of SGLang")
    wheel = parser.parse_args().sglang
    own = sglang_gpu_hash(wheel)
    pool = sglang_ipc(wheel).MmItemMemoryPool(POOL_BYTES, 0.05, 0, 1)
    context = get_context("spawn")
    scheduler, end = context.Pipe()
    process = context.Process(target=partial(schedule, wheel, end), daemon=True)
    process.start()
    assert scheduler.recv() == "ready"
    print(torch.cuda.get_device_name())
    tokenizers = {name: Tokenizer(name, pool, own) for name in ("", "features", "keys,features")}
    points = []
    for items, nbytes in CASES:
        rows = nbytes // (2 * PATCH)
        batch = [
            torch.randn(rows, PATCH, device="cuda", dtype=torch.bfloat16) for _ in range(items)
        ]
        for features, tokenizer in tokenizers.items():
            points.append(measure(features, tokenizer, scheduler, batch))
            print(
                "  {:>2} x {:>8} {:<13} tokenizer {:>8.1f} us, scheduler {:>8.1f} us".format(
                    *points[-1]
                )
            )
    keep("plugin_gpu", points)
    scheduler.send(None)
    process.join()
    pool.shutdown()


if __name__ == "__main__":
    main()
