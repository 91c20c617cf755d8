"""Compares hashing on a GPU with the limits of the device, with SGLang and with torch.

`python -m bench.gpu [--sglang WHEEL]`: by default SGLang's wheel is downloaded from the package
registry.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

import mmhash
from bench.support.measure import Row, keep, medians, report
from bench.support.peers import sglang_gpu_hash
from bench.support.read_kernel import read
from mmhash import cuda

MIB = 1 << 20
SIZES = [MIB // 4, MIB, 4 * MIB, 20 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB]
ALONE = [MIB, 20 * MIB, 256 * MIB]
BATCHES = [1, 8, 64, 512]
ITEM = 3 * MIB // 2
SHARED = [(64, 20 * MIB), (8, 20 * MIB), (64, ITEM), (8, 256 * MIB)]
"""The lists that each of two GPUs hashes."""

Call = Callable[[], object]
SGLang = Callable[[torch.Tensor], int]


class Point(NamedTuple):
    """A measurement: an implementation, its input and its time."""

    measure: str
    what: str
    items: int
    nbytes: int
    microseconds: float
    gigabytes_per_second: float


def points(sglang: SGLang) -> list[Point]:
    """Measure every size as one item, then every batch, for each implementation."""
    flat = torch.randint(-(2**31), 2**31 - 1, (max(SIZES) // 4,), dtype=torch.int32, device="cuda")
    measured = []
    for size in SIZES:
        # Several slices in turn, together larger than the L2 cache.
        turns = min(16, max(SIZES) // size)
        slices = [flat[index * size // 4 : (index + 1) * size // 4] for index in range(turns)]
        on_device = _device_seconds([_on_device(data) for data in slices])
        measured += _points("device", 1, size, on_device)
        measured += _points("call", 1, size, _call_seconds(_to_host_value(slices[0], sglang)))
    for count in BATCHES:
        bundle = flat[: count * ITEM // 4].view(torch.bfloat16).reshape(count, -1)
        batch = list(bundle.unbind())
        seconds = _call_seconds(_to_keys(batch, sglang))
        measured += _points("keys", count, count * ITEM, seconds)
        of_bundle: dict[str, Call] = {
            "blake3": partial(_keys_of_bundle, bundle),
            "sglang": _to_keys(batch, sglang)["sglang"],
        }
        measured += _points("bundle", count, count * ITEM, _call_seconds(of_bundle))
    measured += _alone(flat)
    return measured + _several_gpus(flat)


def _alone(flat: torch.Tensor) -> list[Point]:
    """Measure calls with nothing between them: their code stays in the host's caches."""
    bundle = flat[: 64 * ITEM // 4].view(torch.bfloat16).reshape(64, -1)
    batch = list(bundle.unbind())
    cases: list[tuple[str, int, int, Call]] = [
        *(("call", 1, size, partial(mmhash.digest, flat[: size // 4])) for size in ALONE),
        ("keys", 64, 64 * ITEM, partial(mmhash.keys, batch)),
        ("bundle", 64, 64 * ITEM, partial(_keys_of_bundle, bundle)),
    ]
    return [
        Point(f"{measure}, alone", "blake3", items, nbytes, taken * 1e6, nbytes / taken / 1e9)
        for measure, items, nbytes, call in cases
        for taken in medians(call, rounds=300)
    ]


def _several_gpus(flat: torch.Tensor) -> list[Point]:
    """Measure a list on one GPU, and a list with as many items on each of two GPUs."""
    if torch.cuda.device_count() < 2:
        return []
    measured = []
    other = flat[: max(count * size for count, size in SHARED) // 4].to("cuda:1")
    for count, size in SHARED:
        words = count * size // 4
        first, second = (list(data[:words].reshape(count, -1).unbind()) for data in (flat, other))
        both = [item for pair in zip(first, second, strict=True) for item in pair]
        calls: dict[str, Call] = {
            "one": partial(mmhash.keys, first),
            "two": partial(mmhash.keys, both),
            "two, in turn": partial(mmhash.keys, first + second),
        }
        one, *two = _call_seconds(calls).values()
        measured += _points("gpus", count, count * size, {"one": one})
        for what, seconds in zip(["two", "two, in turn"], two, strict=True):
            measured += _points("gpus", 2 * count, 2 * count * size, {what: seconds})
    return measured


def _keys_of_bundle(bundle: torch.Tensor) -> object:
    return mmhash.keys(mmhash.split(bundle, counts=len(bundle)))


def _on_device(data: torch.Tensor) -> dict[str, Call]:
    segment = [data.data_ptr()], [data.nbytes]
    return {
        "blake3": partial(cuda.hash_segments, 0, *segment, "blake3"),
        "xxh3": partial(cuda.hash_segments, 0, *segment, "xxh3"),
        "torch.hash_tensor": partial(torch.hash_tensor, data),
        "read": partial(read, data),
    }


def _to_host_value(data: torch.Tensor, sglang: SGLang) -> dict[str, Call]:
    return {
        "blake3": lambda: mmhash.digest(data),
        "xxh3": lambda: mmhash.digest(data, algorithm="xxh3"),
        "sglang": partial(sglang, data),
        "torch.hash_tensor": lambda: torch.hash_tensor(data).item(),
        "read": partial(_read_to_host, data),
    }


def _read_to_host(data: torch.Tensor) -> object:
    return read(data)[0].item()


def _to_keys(batch: list[torch.Tensor], sglang: SGLang) -> dict[str, Call]:
    return {
        "blake3": lambda: mmhash.keys(batch),
        "xxh3": lambda: mmhash.keys(batch, algorithm="xxh3"),
        "sglang": lambda: [sglang(item) for item in batch],
    }


def _points(measure: str, items: int, nbytes: int, seconds: dict[str, float]) -> list[Point]:
    return [
        Point(measure, what, items, nbytes, taken * 1e6, nbytes / taken / 1e9)
        for what, taken in seconds.items()
    ]


def _call_seconds(calls: dict[str, Call]) -> dict[str, float]:
    return dict(zip(calls, medians(*calls.values(), rounds=15, loops=5), strict=True))


def _device_seconds(turns: list[dict[str, Call]]) -> dict[str, float]:
    """Time queued launches between two events, each on data that is not in the L2 cache.

    A write before them keeps the device busy until all launches are queued.
    """
    event: Any = torch.cuda.Event  # torch has no types for it
    before = torch.empty(2048 * MIB, dtype=torch.uint8, device="cuda")
    medians_by_name = {}
    for what in turns[0]:
        times = []
        for _ in range(7):
            start, end = (event(enable_timing=True) for _ in range(2))
            before.fill_(1)
            start.record()
            pending = [calls[what]() for calls in turns]
            end.record()
            torch.cuda.synchronize()
            del pending
            times.append(start.elapsed_time(end) / 1e3 / len(turns))
        medians_by_name[what] = median(times[2:])
    return medians_by_name


def rows(measured: list[Point]) -> list[Row]:
    """Return the figures that have a target, and their peers."""
    by_case = {(point.measure, point.what, point.items, point.nbytes): point for point in measured}

    def speed(what: str, size: int, target: str) -> Row:
        point, floor = by_case["device", what, 1, size], by_case["device", "read", 1, size]
        return Row(f"{what}, {size // MIB} MiB, on the device", point.gigabytes_per_second, "GB/s",
                   "read", floor.gigabytes_per_second,
                   point.gigabytes_per_second / floor.gigabytes_per_second, target)  # fmt: skip

    def latency(measure: str, items: int, size: int, target: str) -> Row:
        point, peer = (
            by_case[measure, "blake3", items, size],
            by_case[measure, "sglang", items, size],
        )
        what = _what(measure)
        return Row(f"blake3, {items} x {size // items / MIB:g} MiB, {what}",
                   point.microseconds, "us", "sglang", peer.microseconds,
                   peer.microseconds / point.microseconds, target)  # fmt: skip

    def alone(measure: str, items: int, size: int, target: str) -> Row:
        point = by_case[f"{measure}, alone", "blake3", items, size]
        return Row(f"blake3, {items} x {size // items / MIB:g} MiB, {_what(measure)}, alone",
                   point.microseconds, "us", target=target)  # fmt: skip

    small = by_case["device", "blake3", 1, 20 * MIB]
    gpus = []
    for count, size in SHARED:
        if two := by_case.get(("gpus", "two", 2 * count, 2 * count * size)):
            one = by_case["gpus", "one", count, count * size]
            what = f"blake3, {count} x {size / MIB:g} MiB on each of two GPUs"
            gpus.append(Row(what, two.microseconds, "us", "one GPU twice", 2 * one.microseconds,
                            2 * one.microseconds / two.microseconds, ">= 1.9"))  # fmt: skip
    return [
        speed("blake3", 1024 * MIB, ">= 2000 GB/s"),
        speed("blake3", 4096 * MIB, ">= 2000 GB/s"),
        Row("blake3, 20 MiB, on the device", small.microseconds, "us", target="<= 32"),
        latency("call", 1, MIB, "<= 32"),
        latency("call", 1, 20 * MIB, "<= 42, and below sglang"),
        latency("call", 1, 256 * MIB, "<= 160"),
        latency("keys", 64, 64 * ITEM, "<= 130, >= 15x sglang"),
        latency("bundle", 64, 64 * ITEM, "<= 130, >= 30x sglang"),
        alone("call", 1, MIB, "<= 32"),
        alone("call", 1, 20 * MIB, "<= 42"),
        alone("call", 1, 256 * MIB, "<= 160"),
        alone("keys", 64, 64 * ITEM, "<= 130"),
        alone("bundle", 64, 64 * ITEM, "<= 130"),
        *gpus,
        speed("xxh3", 256 * MIB, ">= 0.85 of read"),
        speed("xxh3", 1024 * MIB, ">= 0.85 of read"),
        speed("xxh3", 4096 * MIB, ">= 0.85 of read"),
    ]


def _what(measure: str) -> str:
    return "in a bundle, to host values" if measure == "bundle" else "to host values"


def main() -> None:
    """Measure everything. Print the figures with targets, and write every point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sglang", type=Path, help="the wheel of SGLang")
    measured = points(sglang_gpu_hash(parser.parse_args().sglang))
    print(torch.cuda.get_device_name())
    for point in measured:
        print("  {:<14}{:<18}{:>4} {:>11} {:>10.1f} us {:>8.1f} GB/s".format(*point))
    keep("gpu_points", measured)
    report("gpu", rows(measured))


if __name__ == "__main__":
    main()
