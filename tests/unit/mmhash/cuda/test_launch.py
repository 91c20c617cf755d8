"""Launches against a stand-in for the CUDA driver, which hashes host memory: no GPU is needed."""

import ctypes
import gc
import random
from typing import Any

import numpy as np
import pytest

from mmhash.algorithms import Algorithm
from mmhash.cpu import hash_bytes
from mmhash.cuda import Frames, Segments, hash_segments
from mmhash.cuda.device import Device
from mmhash.cuda.frames import framing_key
from mmhash.errors import DeviceError, InputValueError
from mmhash.framing import TENANT_SIZE, frame, preimage_template, tenant_key

pytestmark = pytest.mark.usefixtures("device")

BOTH = pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
NOISE = np.random.default_rng(11).integers(0, 256, 4 << 20, dtype=np.uint8)


def check(segments: list[tuple[int, int]], algorithm: Algorithm) -> None:
    """Hash segments of NOISE, given by their offset and size, and compare with the CPU."""
    placed = [(NOISE.ctypes.data + offset, nbytes) for offset, nbytes in segments]
    digests = hash_segments(0, placed, algorithm, stream=0).wait()
    expected = [hash_bytes(NOISE.data[at : at + size], algorithm).bytes for at, size in segments]
    assert digests == expected


@BOTH
def test_digests_of_lists(algorithm: Algorithm) -> None:
    assert hash_segments(0, [], algorithm, stream=0).wait() == []
    for count in (1, 2, 64, 65, 180, 181, 1600, 1601, 4000):
        check([(i % 999, i % 3000) for i in range(count)], algorithm)


@BOTH
@pytest.mark.parametrize("count", [1, 64, 65, 1601])
def test_segments_of_a_range(algorithm: Algorithm, count: int) -> None:
    start = NOISE.ctypes.data
    segments = Segments(range(start, start + 300 * count, 300), [300] * count)
    pairs = list(zip(*segments, strict=True))
    expected = hash_segments(0, pairs, algorithm, stream=0).wait()
    assert hash_segments(0, segments, algorithm, stream=0).wait() == expected
    assert len(set(expected)) == count


def test_a_later_launch_that_fails_gives_back_the_slots_of_all(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[int] = []
    launch = device.driver.launch

    def fail_late(*arguments: Any) -> None:
        launched.append(1)
        if len(launched) == 2:
            raise DeviceError("the second")
        launch(*arguments)

    monkeypatch.setattr(device.driver, "launch", fail_late)
    with pytest.raises(DeviceError, match="the second"):
        hash_segments(0, [(NOISE.ctypes.data, 100)] * 4000, "blake3", stream=0)
    gc.collect()  # the error's traceback holds the launch that succeeded
    assert len(device.free_slots) + len(device.abandoned_slots) == 2


@BOTH
def test_digests_of_every_tiling(algorithm: Algorithm) -> None:
    chosen = random.Random(3)
    for nbytes in (0, 1, 1 << 15, (1 << 15) + 1, 132 << 15, (132 << 15) - 1, len(NOISE)):
        check([(0, min(nbytes, len(NOISE)))], algorithm)
    for _ in range(20):
        check([(chosen.randrange(1 << 20), chosen.randrange(1 << 18)) for _ in range(9)], algorithm)


@BOTH
@pytest.mark.parametrize("tenant", [None, bytes(range(TENANT_SIZE))])
def test_keys_are_framed_as_on_the_host(algorithm: Algorithm, tenant: bytes | None) -> None:
    """Some items stay digests; at 64 and 65 shapes the list fits one launch, or does not."""
    key, mode = framing_key(None if tenant is None else tenant_key(tenant))
    for shapes in (1, 64, 65):
        items: list[tuple[bytes, int] | None] = []
        expected = []
        for i in range(700):
            shape = (i % shapes, 3)
            digest = hash_bytes(NOISE.data[i : i * 3], algorithm)
            framed = frame("tensor", "uint8", shape, digest, tenant=tenant)
            items.append(preimage_template("tensor", "uint8", shape, algorithm) if i % 5 else None)
            expected.append(framed.bytes if i % 5 else digest.bytes)
        segments = [(NOISE.ctypes.data + i, i * 2) for i in range(700)]
        frames = Frames(key, mode, items)
        assert hash_segments(0, segments, algorithm, stream=0, frames=frames).wait() == expected


@BOTH
def test_results_on_the_device(algorithm: Algorithm) -> None:
    out = np.zeros((2000, 32), np.uint8)
    segments = [(NOISE.ctypes.data + i, i) for i in range(2000)]
    address = out.ctypes.data
    digests = hash_segments(0, segments, algorithm, stream=0, device_out=address).wait()
    assert [row.tobytes()[: len(digests[0])] for row in out] == digests


@pytest.mark.parametrize("microseconds", [50, 500, 20_000])
def test_waiting(library: ctypes.CDLL, device: Device, microseconds: int) -> None:
    library.set_delay(ctypes.c_uint64(microseconds))
    device.rates["blake3"] = 1e9
    for _ in range(3):
        pending = hash_segments(0, [(NOISE.ctypes.data, 1 << 20)] * 2, "blake3", stream=0)
        expected = hash_bytes(NOISE.data[: 1 << 20], "blake3").bytes
        assert pending.wait() == [expected, expected]
        assert pending.done()
        assert pending.wait() == [expected, expected]
    assert len(device.free_slots) == 1


def test_slots_of_launches_that_are_not_waited_for(library: ctypes.CDLL, device: Device) -> None:
    library.set_delay(ctypes.c_uint64(20_000))
    first = hash_segments(0, [(NOISE.ctypes.data, 100)], "blake3", stream=0)
    second = hash_segments(0, [(NOISE.ctypes.data, 200)], "blake3", stream=0)
    del second
    assert (len(device.free_slots), len(device.abandoned_slots)) == (0, 1)
    assert first.wait() == [hash_bytes(NOISE.data[:100], "blake3").bytes]
    assert (len(device.free_slots), len(device.abandoned_slots)) == (1, 1)


def test_invalid_segments_and_frames() -> None:
    for bad in [(0, -1), (-1, 5), (1 << 64, 5)]:
        with pytest.raises(InputValueError):
            hash_segments(0, [bad], "blake3", stream=0)
    for items in ([], [(bytes(1025), 0)]):
        with pytest.raises(InputValueError):
            hash_segments(0, [(0, 0)], "blake3", stream=0, frames=Frames(bytes(32), 16, items))
    check([(0, 100)], "blake3")
