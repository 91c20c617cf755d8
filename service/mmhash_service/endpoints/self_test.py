"""The devices that hash, and their self-test."""

import ctypes
from collections.abc import Iterator
from functools import cache

import mmhash
from mmhash.cuda import hash_segments, why_unavailable
from mmhash.cuda.device import device_of
from mmhash.cuda.driver import driver
from mmhash.digest import Algorithm
from mmhash.errors import DeviceError
from mmhash_service.settings import Settings

# Three chunks and a byte of the input of BLAKE3's own test vectors.
_CONTENT = bytes(i % 251 for i in range(3 * 1024 + 1))
_KNOWN_DIGESTS: dict[Algorithm, str] = {
    "blake3": "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3",
    "xxh3": "596dd5c3d14286bcc2b44e0659c8d2e1",
}


def devices(settings: Settings) -> list[str]:
    """Return the devices: the CPU, and the GPUs if the setting cuda_ipc is on."""
    return ["cpu", *(f"cuda:{index}" for index in _gpus(settings))]


def self_test(settings: Settings) -> bool:
    """Return True if each device computes the known digests."""
    return all(
        digest == expected
        for algorithm, expected in _KNOWN_DIGESTS.items()
        for digest in _digests(settings, algorithm)
    )


def _digests(settings: Settings, algorithm: Algorithm) -> Iterator[str]:
    yield mmhash.digest(_CONTENT, algorithm=algorithm).hex()
    for index in _gpus(settings):
        address, length = _pinned_content(index), len(_CONTENT)
        yield hash_segments(index, [address], [length], algorithm).wait()[0].hex()


def _gpus(settings: Settings) -> list[int]:
    if not settings.cuda_ipc:
        return []
    try:
        count = driver().count()
    except DeviceError:
        return []
    return [index for index in range(count) if why_unavailable(index) is None]


@cache
def _pinned_content(index: int) -> int:
    """Copy the content to pinned memory, without torch, and return its address on the GPU."""
    device_state = device_of(index)
    with device_state.context():
        host, device = device_state.driver.allocate_pinned(len(_CONTENT))
    ctypes.memmove(host, _CONTENT, len(_CONTENT))
    return device
