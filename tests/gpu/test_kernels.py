"""The kernels on a device: bit for bit what the CPU gives, whatever the segments."""

import random
import struct
from typing import Any

import numpy as np
import pytest

from mmhash.cpu import hash_bytes
from mmhash.cuda import Frames, hash_segments, tiles, why_unavailable
from mmhash.cuda.device import device_of
from mmhash.cuda.frames import framing_key
from mmhash.cuda.launch import Hash
from mmhash.digest import Algorithm
from mmhash.engines import sglang
from mmhash.errors import DeviceError
from mmhash.fields import field
from mmhash.framing import TENANT_SIZE, frame, tenant_key

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

EACH = pytest.mark.parametrize("algorithm", ["blake3", "xxh3", "sglang"])
BOTH = pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
MIB = 1 << 20


def on_host(data: memoryview, algorithm: Hash) -> bytes:
    """Return what the CPU computes."""
    if algorithm == "sglang":
        return sglang.gpu_hash(data).to_bytes(8, "little")
    return hash_bytes(data, algorithm).bytes


class Content:
    """The same random bytes on the host and on a device."""

    def __init__(self, nbytes: int) -> None:
        import torch

        self.host = np.random.default_rng(11).integers(0, 256, nbytes, dtype=np.uint8)
        self.tensor = torch.from_numpy(self.host).cuda()
        self.address = self.tensor.data_ptr()

    def check(self, segments: list[tuple[int, int]], algorithm: Hash) -> None:
        addresses = [self.address + offset for offset, _ in segments]
        found = hash_segments(0, addresses, [size for _, size in segments], algorithm).wait()
        view = memoryview(self.host)
        for (offset, nbytes), digest in zip(segments, found, strict=True):
            wanted = on_host(view[offset : offset + nbytes], algorithm)
            assert digest == wanted, f"{algorithm}: {nbytes} bytes at {offset}"


@pytest.fixture(scope="module")
def content() -> Content:
    return Content(66 * MIB)


@EACH
def test_every_length_to_4200(content: Content, algorithm: Hash) -> None:
    content.check([(0, nbytes) for nbytes in range(4201)], algorithm)
    content.check([(nbytes % 256, nbytes) for nbytes in range(4201)], algorithm)
    for nbytes in range(0, 4201, 7):  # the kernel for a single segment
        content.check([(nbytes % 256, nbytes)], algorithm)


@EACH
def test_around_each_power_of_two(content: Content, algorithm: Hash) -> None:
    chosen = random.Random(1)
    for power in range(6, 27):
        for extra in (-1025, -1024, -65, -64, -1, 0, 1, 63, 64, 1023, 1024, 1025):
            nbytes = (1 << power) + extra
            if nbytes >= 0:
                for offset in {0, chosen.randrange(256)}:
                    content.check([(offset, nbytes)], algorithm)


@EACH
def test_random_lists(content: Content, algorithm: Hash) -> None:
    chosen = random.Random(2)
    for _ in range(1000):
        count = int(2 ** chosen.uniform(0, 8.5))
        largest = chosen.uniform(4, 21)
        lengths = [int(2 ** chosen.uniform(-1, largest)) for _ in range(count)]
        while sum(lengths) > 24 * MIB:
            lengths.pop()
        content.check([(chosen.randrange(4 * MIB), nbytes) for nbytes in lengths], algorithm)


@pytest.mark.parametrize("shift", [15, 17, 18, 19, 20])
def test_every_tile_size(content: Content, shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tiling = tiles.Tiling(shift, 0 if shift == 15 else tiles.ALL)
    monkeypatch.setattr(tiles, "choose_tiling", lambda *_: tiling)
    for nbytes in (0, 1, 1 << shift, (1 << shift) + 1, 5 << shift, 66 * MIB - 300):
        for offset in (0, 16, 37):
            content.check([(offset, min(nbytes, 66 * MIB - 300))], "blake3")
            content.check([(offset, nbytes % (9 * MIB)), (offset, 1 << shift)], "blake3")


def test_large_and_small_tiles_in_one_segment(content: Content) -> None:
    processors = device_of(0).processors
    large, small = (processors & ~1) << 17, 1 << 15
    for rest in (0, 1, 1000, 1024, small, small + 1, 5 * small + 1024, processors * small):
        for offset in (0, 16, 37):
            content.check([(offset, large + rest), (offset, 5)][: 1 + offset % 2], "blake3")
            content.check([(offset, large + rest)], "blake3")


@EACH
def test_more_than_4_gib(algorithm: Hash) -> None:
    import torch

    nbytes = 5 * 1024 * MIB + 12345
    block = torch.randint(0, 256, (64 * MIB,), dtype=torch.uint8, device="cuda")
    tensor = block.repeat(81)[:nbytes]
    tensor[::1_000_003] += 1
    host = tensor.cpu().numpy()
    for start in (0, 9):
        found = hash_segments(0, [tensor.data_ptr() + start], [nbytes - start], algorithm).wait()
        assert found == [on_host(memoryview(host[start:]), algorithm)]


@BOTH
def test_streams_do_not_wait_for_each_other(content: Content, algorithm: Algorithm) -> None:
    import torch

    streams = [torch.cuda.Stream() for _ in range(8)]
    pending = []
    for turn in range(400):
        stream = streams[turn % len(streams)]
        with torch.cuda.stream(stream):
            tensor = torch.full((turn * 1000 + 1,), turn % 256, dtype=torch.uint8, device="cuda")
            pending.append(
                (
                    hash_segments(0, [tensor.data_ptr()] * 3, [tensor.numel()] * 3, algorithm),
                    tensor,
                    turn,
                )
            )
    for handle, tensor, turn in pending:
        wanted = hash_bytes(memoryview(bytes([turn % 256]) * tensor.numel()), algorithm).bytes
        assert handle.wait() == [wanted] * 3
        assert handle.wait() == [wanted] * 3


def test_the_work_follows_the_callers_stream() -> None:
    import torch

    stream = torch.cuda.Stream()
    tensor = torch.zeros(1000, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        tensor += 7
        handle = hash_segments(0, [tensor.data_ptr()], [1000], "blake3")
        assert not stream.query()
    elsewhere = hash_segments(0, [tensor.data_ptr()], [0], "blake3")
    assert elsewhere.wait() == [hash_bytes(memoryview(b""), "blake3").bytes]
    assert handle.wait() == [hash_bytes(memoryview(b"\7" * 1000), "blake3").bytes]


@BOTH
def test_results_on_the_device(content: Content, algorithm: Algorithm) -> None:
    import torch

    out = torch.zeros(2000, 32, dtype=torch.uint8, device="cuda")
    addresses = [content.address + i for i in range(2000)]
    lengths = range(0, 10_000, 5)
    found = hash_segments(0, addresses, lengths, algorithm, device_out=out.data_ptr()).wait()
    rows = out.cpu().numpy()
    assert [row.tobytes()[: len(digest)] for row, digest in zip(rows, found, strict=True)] == found


@BOTH
@pytest.mark.parametrize("tenant", [None, bytes(range(TENANT_SIZE))])
def test_keys_are_framed_as_on_the_host(
    content: Content, algorithm: Algorithm, tenant: bytes | None
) -> None:
    size = 32 if algorithm == "blake3" else 16
    items: list[Any] = []
    wanted = []
    view = memoryview(content.host)
    for i in range(700):
        shape = (i,) * (i % 40)
        digest = hash_bytes(view[i : i * 11], algorithm)
        head = b"".join(
            map(
                field,
                (
                    b"1",
                    b"tensor",
                    b"uint8",
                    struct.pack(f"<{len(shape)}Q", *shape),
                    algorithm.encode(),
                ),
            )
        )
        preimage = head + field(bytes(size)) + field(b"x" * (i % 300))
        items.append((preimage, len(head) + 8))
        framed = frame("tensor", "uint8", shape, digest, b"x" * (i % 300), tenant=tenant)
        wanted.append(framed.bytes)
    key, mode = framing_key(None if tenant is None else tenant_key(tenant))
    addresses, frames = [content.address + i for i in range(700)], Frames(key, mode, items)
    pending = hash_segments(0, addresses, range(0, 7000, 10), algorithm, frames=frames)
    assert pending.wait() == wanted


def test_why_a_device_is_unavailable() -> None:
    assert why_unavailable(0) is None
    assert why_unavailable(99) == "there is no CUDA device 99"
    with pytest.raises(DeviceError, match="99"):
        hash_segments(99, [0], [0], "blake3")
