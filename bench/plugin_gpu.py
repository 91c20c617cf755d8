"""What the plugin takes from SGLang's scheduler: hashes of features of real sizes on a GPU.

`python -m bench.plugin_gpu [--sglang FILE]`: FILE is SGLang's gpu_tensor_hash.py; by default it is
downloaded from the package registry. An item names itself as SGLang's does. The scheduler calls
`set_pad_value` of each item, which computes nothing if the plugin named the item in the tokenizer.
With CUDA IPC, a second process is the scheduler: SGLang's copies a feature before it hashes it.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch

import mmhash
from bench.support.measure import keep
from bench.support.peers import sglang_gpu_hash
from mmhash.engines import sglang
from mmhash.plugin.sglang import name_features, set_pad_values
from mmhash.transport import FeaturePool, IpcTensor

MB = 10**6
CASES = [(1, MB), (1, 5 * MB), (1, 20 * MB), (1, 80 * MB), (64, MB), (64, 5 * MB), (64, 20 * MB)]
BEHIND_HANDLES = [(1, 20 * MB), (64, 5 * MB)]
ROUNDS = 21
PATCH = 1176
"""The values of a patch in Qwen-VL's features."""

Hash = Callable[[torch.Tensor], int]


class Item:
    """SGLang's MultimodalDataItem, as far as its name goes."""

    precomputed_embeddings = None

    def __init__(self, feature: Any, own: Hash) -> None:
        self.feature, self._own = feature, own
        self.pad_values: list[int] = []

    def set_hash(self, value: int) -> None:
        """Derive the pad values from a hash."""
        self.pad_values = sglang.pad_values(value)

    def set_pad_value(self) -> None:
        """Name the item by its feature, unless it has a name."""
        if not self.pad_values:
            feature = self.feature
            if isinstance(feature, IpcTensor):
                feature = feature.reconstruct()
            self.set_hash(self._own(torch.concat([feature.flatten()])))


class Point(NamedTuple):
    """The medians of one case, in microseconds."""

    items: int
    nbytes: int
    transport: str
    own_us: float
    """The engine's hash, in the scheduler, or in the tokenizer with MMHASH_PLUGIN=features."""
    keys_us: float
    """mmhash's keys in the tokenizer, with MMHASH_PLUGIN=keys,features."""
    named_us: float
    """The scheduler, once the tokenizer has named the items."""


def features(items: int, nbytes: int) -> list[torch.Tensor]:
    """Return features as Qwen-VL's processor makes them: rows of patches in bfloat16."""
    rows = nbytes // (2 * PATCH)
    return [torch.randn(rows, PATCH, device="cuda", dtype=torch.bfloat16) for _ in range(items)]


def check(own: Hash, batch: list[torch.Tensor]) -> None:
    """Compare with the CPU: the engine's hash and pad values, and the plugin's."""
    kept, named = ([Item(each, own) for each in batch[:4]] for _ in range(2))
    set_pad_values(kept)
    name_features(named)
    on_cpu = [each.cpu() for each in batch[:4]]
    assert [item.pad_values for item in kept] == [
        sglang.pad_values(sglang.gpu_hash(each)) for each in on_cpu
    ]
    assert [item.pad_values for item in named] == [
        sglang.pad_values(key.u64) for key in mmhash.keys(on_cpu)
    ]


def time_steps(make: Callable[[], list[Item]]) -> list[float]:
    """Return the median microseconds of the engine's hash, of keys, and of items with a name."""
    times: list[list[float]] = []
    for _ in range(ROUNDS):
        unnamed, items = make(), make()
        torch.cuda.synchronize()
        marks = [perf_counter()]
        for step, named in (
            (set_pad_values, unnamed),
            (name_features, items),
            (set_pad_values, items),
        ):
            step(named)
            marks.append(perf_counter())
        times.append([end - start for start, end in pairwise(marks)])
    return [median(each) * 1e6 for each in zip(*times, strict=True)]


def behind_handles(path: Path | None, batch: list[torch.Tensor]) -> list[float]:
    """Return the medians of a second process that gets handles of the features."""
    pool = FeaturePool(0, nbytes=2 * sum(each.nbytes for each in batch), timeout_s=600)
    handles = [pool.lease(each).handle() for each in batch]
    options = [] if path is None else ["--sglang", str(path)]
    result = subprocess.check_output(
        [sys.executable, "-m", "bench.plugin_gpu", *options, "--scheduler"],
        input=json.dumps(handles),
        text=True,
    )
    pool.close()
    output: dict[str, Any] = json.loads(result.splitlines()[-1])
    local = [Item(each, sglang_gpu_hash(path)) for each in batch]
    set_pad_values(local)
    assert output["pads"] == [item.pad_values for item in local]
    assert output["keys"] == [str(key) for key in mmhash.keys(batch)]
    return list(output["times"])


def schedule(own: Hash) -> None:
    """Measure items behind the handles on standard input; this is the second process."""
    whole = [IpcTensor.open(handle) for handle in json.load(sys.stdin)]
    times = time_steps(lambda: [Item(each, own) for each in whole])
    items = [Item(each, own) for each in whole]
    set_pad_values(items)
    keys = [str(key) for key in mmhash.keys(whole)]
    print(json.dumps({"times": times, "pads": [item.pad_values for item in items], "keys": keys}))


def main() -> None:
    """Check and measure each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sglang", type=Path, help="gpu_tensor_hash.py of SGLang")
    parser.add_argument("--scheduler", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    own = sglang_gpu_hash(given.sglang)
    if given.scheduler:
        schedule(own)
        return
    print(torch.cuda.get_device_name())
    points = []
    for items, nbytes in CASES:
        batch = features(items, nbytes)
        check(own, batch)

        def make(batch: list[torch.Tensor] = batch) -> list[Item]:
            return [Item(each, own) for each in batch]

        points.append(Point(items, nbytes, "", *time_steps(make)))
        if (items, nbytes) in BEHIND_HANDLES:
            points.append(Point(items, nbytes, "cuda_ipc", *behind_handles(given.sglang, batch)))
    for point in points:
        print(
            "  {:>2} x {:>8} {:<9} own {:>8.1f} us, keys {:>7.1f} us, named {:>6.1f} us".format(
                *point
            )
        )
    keep("plugin_gpu", points)


if __name__ == "__main__":
    main()
