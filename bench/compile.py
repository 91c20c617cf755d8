"""Measures the time saved by fusing the hash into the code that computes the features.

It also measures what the passes cost. `python -m bench.compile [--device cpu|cuda]` runs on one
device, or by default on every device of this machine.
"""

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from bench.support.measure import Row, compare, medians, report
from mmhash import ops
from mmhash.compile import Backend

MIB = 1 << 20
IMAGE = (3, 512, 512)
MEAN = [0.48145466, 0.4578275, 0.40821073]
STD = [0.26862954, 0.26130258, 0.27577711]

Call = Callable[[], object]


class Normalize(nn.Module):
    """The steps of an image processor, and the digest of each image."""

    def __init__(self, algorithm: str) -> None:
        super().__init__()
        self.algorithm = algorithm
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None])
        self.register_buffer("std", torch.tensor(STD)[:, None, None])

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features and their digests."""
        features = (pixels.to(torch.float32) * (1 / 255) - self.mean) / self.std
        features = features.to(torch.bfloat16)
        return features, ops.digest(features, algorithm=self.algorithm, dim=0)


def contenders(algorithm: str, pixels: Tensor) -> dict[str, Call]:
    """Compile the model by Inductor with and without the passes, and compare the results."""
    model = Normalize(algorithm).to(pixels.device)
    backend = Backend()
    fused = torch.compile(model, backend=backend)
    plain = torch.compile(model)
    for actual, expected in zip(fused(pixels), model(pixels), strict=True):
        if not torch.equal(actual, expected):
            raise AssertionError("the fused call returns another result")
    print(backend.manager.last_report())
    return {"fused": lambda: fused(pixels), "plain": lambda: plain(pixels)}


def noise(mib: int, device: str) -> Tensor:
    """Return a batch of images of at least this size."""
    count = -(-mib * MIB // torch.Size(IMAGE).numel())
    return torch.randint(0, 256, (count, *IMAGE), dtype=torch.uint8, device=device)


def on_cpu() -> list[Row]:
    """Measure 64 MiB of pixels, and the cost of the passes for a graph without a match."""
    pixels = noise(64, "cpu")
    rows = []
    for algorithm in ("blake3", "xxh3"):
        calls = contenders(algorithm, pixels)
        rows += compare(
            f"{algorithm}, 64 MiB of pixels to bfloat16",
            calls["fused"],
            {"compiled steps, then digest": (calls["plain"], ">= 1.15")},
            rounds=15,
        )
    return rows + [overhead(then) for then in ("eager", "inductor")]


def overhead(then: str) -> Row:
    """Measure the compilation of a small transformer, in which no pass matches."""
    layers = [nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(3)]
    model = nn.Sequential(*layers).eval()
    x = torch.rand(2, 16, 64)
    managed = Backend(then=then)

    def compiling(backend: Any) -> Call:
        def call() -> object:
            torch.compiler.reset()
            with torch.no_grad():
                return torch.compile(model, backend=backend)(x)

        return call

    plain = "aot_eager" if then == "eager" else then
    ours, peer = medians(compiling(managed), compiling(plain), rounds=31)
    more = ours / peer
    return Row(f"compiling for {then}", ours * 1e3, "ms", "no passes", peer * 1e3, more, "<= 1.05")


def on_cuda() -> list[Row]:
    """Measure 256 MiB of pixels on the device, with the roofline. Print the kernels."""
    pixels = noise(256, "cuda")
    bandwidth = _bandwidth()
    # Fused code reads the pixels and writes the features; separate code reads the features again.
    floor = 3 * pixels.numel() / bandwidth
    rows = [Row("copy, 1 GiB, read and written", bandwidth / 1e9, "GB/s")]
    for algorithm in ("blake3", "xxh3"):
        calls = contenders(algorithm, pixels)
        features, _ = ops.normalize_digest(pixels, None, MEAN, STD, torch.bfloat16)
        hash_only: Call = partial(ops.digest, features, algorithm=algorithm, dim=0)
        own, peer, digest = (_device_seconds(call) for call in (*calls.values(), hash_only))
        what = f"{algorithm}, 256 MiB of pixels to bfloat16"
        separate = "compiled steps, then digest"
        rows += [
            Row(what, own * 1e3, "ms", separate, peer * 1e3, peer / own, ">= 1.3"),
            Row(f"{what}, roofline", floor * 1e3, "ms", "fused", own * 1e3, own / floor),
            Row(f"{algorithm} of features", digest * 1e3, "ms", "fused", own * 1e3, own / digest),
            *compare(
                f"{what}, until it is ready",
                _until_ready(calls["fused"]),
                {separate: (_until_ready(calls["plain"]), "")},
            ),
        ]  # fmt: skip
        for name, call in calls.items():
            print(f"\n{algorithm}, {name}: kernels of one call")
            _print_kernels(call)
    return rows


def _bandwidth() -> float:
    """Return the bytes a second that a copy reads and writes."""
    source, target = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    return 2 * source.numel() / _device_seconds(lambda: target.copy_(source))


def _device_seconds(call: Call, loops: int = 5) -> float:
    """Return the median time of queued calls. Earlier writes keep the device busy meanwhile."""
    event: Any = torch.cuda.Event  # torch has no types for it
    before = torch.empty(2048 * MIB, dtype=torch.uint8, device="cuda")
    times: list[float] = []
    for _ in range(13):
        start, end = (event(enable_timing=True) for _ in range(2))
        for _ in range(10):
            before.fill_(1)
        start.record()
        for _ in range(loops):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / loops)
    return median(times[3:])


def _until_ready(call: Call) -> Call:
    def wait() -> object:
        result = call()
        torch.cuda.synchronize()
        return result

    return wait


def _print_kernels(call: Call) -> None:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    for entry in profiler.key_averages():
        if entry.device_type.name == "CUDA":
            print(f"  {entry.count:>3} x {entry.device_time_total:>9.1f} us  {entry.key[:90]}")


def main() -> None:
    """Measure on one device or on all. Print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    device = parser.parse_args().device
    torch.compiler.config.force_disable_caches = True  # otherwise torch warns at each compilation
    warnings.filterwarnings("ignore", ".*force disabled.*")
    if device != "cuda":
        report("compile", on_cpu())
    if device == "cuda" or (device is None and torch.cuda.is_available()):
        print(torch.cuda.get_device_name())
        report("compile_gpu", on_cuda())


if __name__ == "__main__":
    main()
