"""The hash of SGLang's GPU kernel: by a kernel of our own on a GPU, with numpy on the CPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mmhash.cuda import Pending, hash_segments, why_unavailable
from mmhash.engines import checks
from mmhash.torch_tensor import DeviceBytes
from mmhash.view import View, view_of

_U32 = npt.NDArray[np.uint32]

_MASK_64 = 2**64 - 1
_TILE = 8192
_TILE_BYTES = 4 * _TILE
# How many tiles are hashed at a time. With fewer, numpy's overhead dominates; more gain nothing.
_ROWS = 16


def gpu_hash(data: Any) -> int:
    """Return the value of SGLang's GPU kernel for anything that has bytes.

    The input is padded with zero bytes to a multiple of 4, so the zeros that complete the last word
    do not change the hash. Empty input hashes to 0.
    """
    return gpu_hashes([data])[0]


@checks.readable("data")
def gpu_hashes(items: Sequence[Any]) -> list[int]:
    """Return `gpu_hash` of each item. Those on a GPU are hashed there, with one launch per GPU."""
    views = [view_of(item) for item in items]
    by_device: dict[int, list[int]] = {}
    for number, view in enumerate(views):
        if isinstance(view.data, DeviceBytes) and why_unavailable(view.data.device) is None:
            by_device.setdefault(view.data.device, []).append(number)
    launches = [(numbers, _launch(device, views, numbers)) for device, numbers in by_device.items()]
    hashes = {
        number: int.from_bytes(result, "little")
        for numbers, launch in launches
        for number, result in zip(numbers, launch.wait(), strict=True)
    }
    return [
        hashes[number] if number in hashes else _hash_on_host(view.on_host())
        for number, view in enumerate(views)
    ]


def _launch(device: int, views: Sequence[View], numbers: Sequence[int]) -> Pending:
    segments: Any = [views[number].data for number in numbers]
    addresses, lengths = [one.address for one in segments], [one.nbytes for one in segments]
    return hash_segments(device, addresses, lengths, "sglang")


def _hash_on_host(data: memoryview) -> int:
    content = np.frombuffer(data, np.uint8)
    nbytes = -(-len(content) // 4) * 4
    tiled = len(content) // _TILE_BYTES * _TILE_BYTES
    tiles = content[:tiled].view(np.uint32).reshape(-1, _TILE)
    total = sum(
        _hash_tiles(tiles[first : first + _ROWS], first, nbytes)
        for first in range(0, len(tiles), _ROWS)
    )
    if tiled < len(content):
        last = np.zeros(nbytes - tiled, np.uint8)
        last[: len(content) - tiled] = content[tiled:]
        total += _hash_tiles(last.view(np.uint32)[None], len(tiles), nbytes)
    return _splitmix64(total & _MASK_64)


def _rotl(words: _U32, by: int) -> _U32:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


def _lane(multiplier: int, seed: int, rotation: int) -> tuple[np.uint32, int, _U32, _U32]:
    """Return, for one of the two hashes, what in the mask depends on a word's place in a tile.

    A word's index is the start of its tile plus its place. Both parts of the mask split along that
    sum: the product because it is linear, and the rotation because the summands share no bit.
    """
    place = np.arange(_TILE, dtype=np.uint32)
    scaled = place * np.uint32(multiplier) + np.uint32(seed)
    return np.uint32(multiplier), rotation, scaled, _rotl(place, rotation)


_SEED = 0x243F6A88
_LANES = (
    _lane(0x27D4EB2D, _SEED, 15),
    _lane(0x165667B1, (_SEED * 0x9E3779B1 ^ 0xDEADBEEF) & 0xFFFFFFFF, 13),
)


def _hash_tiles(tiles: _U32, first: int, nbytes: int) -> int:
    """Return the sum of the 64-bit hashes of some tiles, numbered from `first`."""
    rows, width = tiles.shape
    start = ((first + np.arange(rows, dtype=np.uint64)) * _TILE).astype(np.uint32)[:, None]
    mixed, spare = np.empty((2, rows, width), np.uint32)
    hashes = np.zeros(rows, np.uint64)
    for multiplier, rotation, scaled, rotated in _LANES:
        np.add(scaled[:width], start * multiplier, out=mixed)
        np.bitwise_xor(mixed, tiles, out=mixed)
        np.bitwise_xor(mixed, rotated[:width], out=mixed)
        np.bitwise_xor(mixed, _rotl(start, rotation), out=mixed)
        _fmix32(mixed, spare)
        half = np.add.reduce(mixed, axis=1, dtype=np.uint32)
        half ^= np.uint32(nbytes & 0xFFFFFFFF)
        _fmix32(half, np.empty_like(half))
        hashes = hashes << np.uint64(32) | half
    return int(hashes.sum(dtype=np.uint64))


def _fmix32(words: _U32, spare: _U32) -> None:
    """MurmurHash3's finalizer, in place."""
    for shift, multiplier in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        np.right_shift(words, np.uint32(shift), out=spare)
        np.bitwise_xor(words, spare, out=words)
        np.multiply(words, np.uint32(multiplier), out=words)
    np.right_shift(words, np.uint32(16), out=spare)
    np.bitwise_xor(words, spare, out=words)


def _splitmix64(number: int) -> int:
    """SplitMix64's finalizer."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK_64
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK_64
    return number ^ number >> 31
