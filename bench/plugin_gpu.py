"""What the plugin computes on a GPU in place of SGLang: hashes of features of real sizes.

`python -m bench.plugin_gpu [--sglang FILE]`: FILE is SGLang's gpu_tensor_hash.py; by default it is
downloaded from the package registry. SGLang's kernel is called once for each item, as
`set_pad_value` does in the scheduler or, with MMHASH_PLUGIN=features, in the tokenizer. With
`keys,features` the plugin calls `mmhash.keys` once for all items of a request.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

import mmhash
from bench.support.measure import keep, medians
from bench.support.peers import sglang_gpu_hash
from mmhash.engines import sglang

MB = 10**6
CASES = [(1, MB), (1, 5 * MB), (1, 20 * MB), (1, 80 * MB), (64, MB), (64, 5 * MB), (64, 20 * MB)]
PATCH = 1176
"""The values of a patch in Qwen-VL's features."""


class Point(NamedTuple):
    """The medians of one case, in microseconds."""

    items: int
    nbytes: int
    sglang_us: float
    keys_us: float
    ratio: float


def features(items: int, nbytes: int) -> list[torch.Tensor]:
    """Return features as Qwen-VL's processor makes them: rows of patches in bfloat16."""
    rows = nbytes // (2 * PATCH)
    return [torch.randn(rows, PATCH, device="cuda", dtype=torch.bfloat16) for _ in range(items)]


def check(own: Callable[[torch.Tensor], int], batch: list[torch.Tensor]) -> None:
    """Compare values: our `gpu_hash` with the kernel's, keys on the GPU with those on the CPU."""
    first = batch[0]
    assert sglang.gpu_hash(first) == sglang.hash_feature(first) == own(first)
    on_cpu = [item.cpu() for item in batch[:4]]
    assert mmhash.keys(batch)[:4] == mmhash.keys(on_cpu)


def measure(own: Callable[[torch.Tensor], int], batch: list[torch.Tensor]) -> tuple[float, float]:
    """Return the median seconds of SGLang's kernel and of ours, to values on the host."""
    theirs, ours = medians(
        lambda: [own(item) for item in batch], partial(mmhash.keys, batch), rounds=21
    )
    return theirs, ours


def main() -> None:
    """Check and measure each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sglang", type=Path, help="gpu_tensor_hash.py of SGLang")
    own = sglang_gpu_hash(parser.parse_args().sglang)
    print(torch.cuda.get_device_name())
    points = []
    for items, nbytes in CASES:
        batch = features(items, nbytes)
        check(own, batch)
        theirs, ours = measure(own, batch)
        points.append(Point(items, nbytes, theirs * 1e6, ours * 1e6, theirs / ours))
        print(
            f"  {items:>2} x {nbytes // MB:>2} MB  sglang {theirs * 1e6:>9.1f} us  "
            f"mmhash.keys {ours * 1e6:>9.1f} us  {theirs / ours:.2f}x",
            flush=True,
        )
    keep("plugin_gpu", points)


if __name__ == "__main__":
    main()
