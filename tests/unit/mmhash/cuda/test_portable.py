"""The kernels' arithmetic, compiled for the host: equal to the blake3 and xxhash packages."""

import ctypes
import random
import struct
from collections.abc import Callable

import numpy as np
import pytest
from blake3 import blake3
from xxhash import xxh3_128_digest

from mmhash.cpu import hash_bytes
from mmhash.cuda.frames import CONTEXT_KEY, DERIVE_KEY, KEYED, framing_key
from mmhash.engines.sglang import gpu_hash
from mmhash.framing import KEY_CONTEXT
from mmhash.states import XXH3_LEAF, XXH3_ROOT_SEED

LEAF_SHIFT = XXH3_LEAF.bit_length() - 1
# Chunk and block edges, and sizes whose trees have every kind of odd node.
LENGTHS = sorted(
    {0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 2047, 2048, 2049, 3072, 3073, 4096}
    | {chunks * 1024 + extra for chunks in range(5, 18) for extra in (0, 1, 1023)}
    | {31744, 102400, 131071, 131072, 131073, 400_000, 1 << 20}
)


@pytest.fixture(scope="module")
def host(compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    return compile_for_host("host.cpp")


class Data:
    """Random bytes at an address that 256 divides, with room on both sides."""

    def __init__(self, nbytes: int) -> None:
        self._held = np.random.default_rng(3).integers(0, 256, nbytes + 1024, dtype=np.uint8)
        self._at = -self._held.ctypes.data % 256 + 256

    def __getitem__(self, part: slice) -> bytes:
        return self._held[self._at :][part].tobytes()

    def address(self, offset: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._held.ctypes.data + self._at + offset)


@pytest.fixture(scope="module")
def data() -> Data:
    return Data(4 << 20)


def _call(function: object, size: int, *arguments: object) -> bytes:
    out = ctypes.create_string_buffer(size)
    function(*arguments, out)  # type: ignore[operator]
    return out.raw


@pytest.mark.parametrize("unroll", [1, 4, 7])
def test_blake3_is_the_packages_at_every_edge(host: ctypes.CDLL, data: Data, unroll: int) -> None:
    for nbytes in LENGTHS:
        for offset in (0, 1, 4, 7, 13, 16):
            for tile_shift in (12, 15, 17):
                found = _call(
                    host.host_blake3,
                    32,
                    data.address(offset),
                    ctypes.c_uint64(nbytes),
                    tile_shift,
                    unroll,
                )
                assert found == blake3(data[offset : offset + nbytes]).digest(), (
                    nbytes,
                    offset,
                    tile_shift,
                )


def test_sglang_s_hash_is_the_one_of_numpy(host: ctypes.CDLL, data: Data) -> None:
    for nbytes in LENGTHS:
        for offset in (0, 7):
            arguments = data.address(offset), ctypes.c_uint64(nbytes), 15
            found = _call(host.host_sglang, 8, *arguments)
            assert int.from_bytes(found, "little") == gpu_hash(data[offset : offset + nbytes])


def test_blake3_is_the_packages_at_every_short_length(host: ctypes.CDLL, data: Data) -> None:
    for nbytes in range(4201):
        offset = nbytes % 256
        found = _call(host.host_blake3, 32, data.address(offset), ctypes.c_uint64(nbytes), 17, 7)
        assert found == blake3(data[offset : offset + nbytes]).digest(), nbytes


def test_a_chunks_counter_has_64_bits(host: ctypes.CDLL, data: Data) -> None:
    counters = [0, 1, 0xFFFFFFFF, 1 << 32, (1 << 32) + 1, (1 << 53) - 1]
    found = {
        _call(host.host_chunk, 32, data.address(0), 1024, ctypes.c_uint64(n), 0) for n in counters
    }
    assert len(found) == len(counters)


def test_framing_modes_are_the_packages(host: ctypes.CDLL) -> None:
    secret = bytes(range(32))
    assert framing_key(None) == (CONTEXT_KEY, DERIVE_KEY)
    assert framing_key(secret) == (secret, KEYED)
    for nbytes in (0, 1, 63, 64, 65, 141, 192, 1023, 1024):
        message = bytes(i % 251 for i in range(nbytes))
        derived = _call(host.host_keyed, 32, message, nbytes, CONTEXT_KEY, DERIVE_KEY)
        assert derived == blake3(message, derive_key_context=KEY_CONTEXT).digest()
        keyed = _call(host.host_keyed, 32, message, nbytes, secret, KEYED)
        assert keyed == blake3(message, key=secret).digest()


def test_the_context_key_is_the_contexts(host: ctypes.CDLL) -> None:
    words = (
        0x6A09E667,
        0xBB67AE85,
        0x3C6EF372,
        0xA54FF53A,
        0x510E527F,
        0x9B05688C,
        0x1F83D9AB,
        0x5BE0CD19,
    )
    context, derive_key_context = KEY_CONTEXT.encode(), 32
    found = _call(
        host.host_keyed, 32, context, len(context), struct.pack("<8I", *words), derive_key_context
    )
    assert found == CONTEXT_KEY


@pytest.mark.parametrize("seed", [0, 1, XXH3_ROOT_SEED, (1 << 64) - 1])
def test_xxh3_is_the_packages_at_every_short_length(
    host: ctypes.CDLL, data: Data, seed: int
) -> None:
    for nbytes in range(4201):
        offset = nbytes % 256
        found = _call(host.host_xxh3_128, 16, data.address(offset), nbytes, ctypes.c_uint64(seed))
        assert found == xxh3_128_digest(data[offset : offset + nbytes], seed), nbytes


def test_the_xxh3_tree_is_the_cpus(host: ctypes.CDLL, data: Data) -> None:
    lengths = [0, 1, 240, 241, 1 << 20, 3 * XXH3_LEAF + 5]
    lengths += [XXH3_LEAF * leaves + extra for leaves in (1, 2, 14, 15) for extra in (-1, 0, 1)]
    for nbytes in lengths:
        for offset in (0, 3, 8):
            found = _call(
                host.host_xxh3_tree, 16, data.address(offset), ctypes.c_uint64(nbytes), LEAF_SHIFT
            )
            wanted = hash_bytes(memoryview(data[offset : offset + nbytes]), "xxh3").bytes
            assert found == wanted, (nbytes, offset)


def test_a_tile_finds_its_segment(host: ctypes.CDLL) -> None:
    chosen = random.Random(4)
    for count in (1, 2, 3, 64, 1600):
        tiles = [chosen.randrange(1, 5) for _ in range(count)]
        firsts = [sum(tiles[:i]) for i in range(count)]
        table = (ctypes.c_uint32 * count)(*firsts)
        owners = [i for i in range(count) for _ in range(tiles[i])]
        assert [host.host_segment_of(table, count, tile) for tile in range(len(owners))] == owners
