"""Launches against a stand-in for the CUDA driver, which hashes host memory: no GPU is needed."""

import ctypes
import gc
import random
from typing import Any

import numpy as np
import pytest

from mmhash.algorithms import Algorithm
from mmhash.cpu import hash_bytes
from mmhash.cuda import Frames, hash_segments
from mmhash.cuda.device import Device
from mmhash.cuda.frames import framing_key
from mmhash.errors import DeviceError, InputValueError
from mmhash.framing import TENANT_SIZE, frame, preimage_template, tenant_key

pytestmark = pytest.mark.usefixtures("device")

BOTH = pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
NOISE = np.random.default_rng(11).integers(0, 256, 4 << 20, dtype=np.uint8)


def check(segments: list[tuple[int, int]], algorithm: Algorithm) -> None:
    """Hash segments of NOISE, given by their offset and size, and compare with the CPU."""
    addresses = [NOISE.ctypes.data + offset for offset, _ in segments]
    digests = hash_segments(0, addresses, [size for _, size in segments], algorithm).wait()
    expected = [hash_bytes(NOISE.data[at : at + size], algorithm).bytes for at, size in segments]
    assert digests == expected


@BOTH
def test_digests_of_lists(algorithm: Algorithm) -> None:
    assert hash_segments(0, [], [], algorithm).wait() == []
    for count in (1, 2, 64, 65, 180, 181, 1600, 1601, 4000):
        check([(i % 999, i % 3000) for i in range(count)], algorithm)


@BOTH
@pytest.mark.parametrize("count", [1, 64, 65, 1601])
def test_segments_of_a_range(algorithm: Algorithm, count: int) -> None:
    start = NOISE.ctypes.data
    addresses, lengths = range(start, start + 300 * count, 300), [300] * count
    expected = hash_segments(0, list(addresses), lengths, algorithm).wait()
    assert hash_segments(0, addresses, lengths, algorithm).wait() == expected
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
        hash_segments(0, [NOISE.ctypes.data] * 4000, [100] * 4000, "blake3")
    gc.collect()  # the error's traceback holds the launches
    assert [slot.is_busy() for slot in device.slots] == [False, False]


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
    """At 64 and 65 shapes the list fits one launch, or does not."""
    key, mode = framing_key(None if tenant is None else tenant_key(tenant))
    for shapes in (1, 64, 65):
        items: list[tuple[bytes, int]] = []
        expected = []
        for i in range(700):
            shape = (i % shapes, 3)
            digest = hash_bytes(NOISE.data[i : i * 3], algorithm)
            items.append(preimage_template("tensor", "uint8", shape, algorithm))
            expected.append(frame("tensor", "uint8", shape, digest, tenant=tenant).bytes)
        addresses = [NOISE.ctypes.data + i for i in range(700)]
        frames = Frames(key, mode, items)
        pending = hash_segments(0, addresses, range(0, 1400, 2), algorithm, frames=frames)
        assert pending.wait() == expected


@BOTH
def test_results_on_the_device(algorithm: Algorithm) -> None:
    out = np.zeros((2000, 32), np.uint8)
    addresses = [NOISE.ctypes.data + i for i in range(2000)]
    pending = hash_segments(0, addresses, range(2000), algorithm, device_out=out.ctypes.data)
    digests = pending.wait()
    assert [row.tobytes()[: len(digests[0])] for row in out] == digests


@pytest.mark.parametrize("microseconds", [50, 500, 20_000])
def test_waiting(library: ctypes.CDLL, device: Device, microseconds: int) -> None:
    library.set_delay(ctypes.c_uint64(microseconds))
    for _ in range(3):
        pending = hash_segments(0, [NOISE.ctypes.data] * 2, [1 << 20] * 2, "blake3")
        expected = hash_bytes(NOISE.data[: 1 << 20], "blake3").bytes
        assert pending.wait() == [expected, expected]
        assert pending.wait() == [expected, expected]
        del pending
    assert len(device.slots) == 1


def test_slots_of_launches_that_are_not_waited_for(library: ctypes.CDLL, device: Device) -> None:
    library.set_delay(ctypes.c_uint64(20_000))
    hash_segments(0, [NOISE.ctypes.data], [100], "blake3")  # dropped while its kernel runs
    assert [slot.is_busy() for slot in device.slots] == [True]
    second = hash_segments(0, [NOISE.ctypes.data], [200], "blake3")
    assert second.wait() == [hash_bytes(NOISE.data[:200], "blake3").bytes]
    del second
    assert len(device.slots) == 2


def test_a_frame_that_is_too_long() -> None:
    with pytest.raises(InputValueError, match="1024 bytes"):
        hash_segments(0, [0], [0], "blake3", frames=Frames(bytes(32), 16, [(bytes(1025), 0)]))
    check([(0, 100)], "blake3")
