"""Small files that cost a decoder a minute or gigabytes, one at a time and many at once.

A decoder may use what an image of its size needs, and no more. Probes, JSON and tensors do not wait
for decoders.
"""

import base64
import random
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import httpx
import pytest
from PIL import Image

import mmhash
from tests.support.decoders import wait_for_ready
from tests.support.deflate import deflated_zeros
from tests.support.png import chunk, png
from tests.support.responses import items_of, refusal_of
from tests.support.victim import serving

# The reason is the image's content or the CPU time that its size allows, not the time-out.
REFUSALS = {"costly-media", "damaged-media", "media-too-large"}

PILLOW_MAX_PIXELS = 178_956_970


def bmp(width: int, height: int, data: bytes, compression: int = 1, bits: int = 8) -> bytes:
    """A BMP with a palette; run-length coded unless `compression` says otherwise."""
    head = struct.pack(
        "<IIIHHIIIIII", 40, width, height, 1, bits, compression, len(data), 0, 0, 256, 0
    )
    palette = bytes(range(256)) * 4
    offset = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(data), 0, 0, offset) + head + palette + data


def tiff(width: int, height: int, tile: int, frames: int) -> bytes:
    """Frames in one deflated tile each, which they share."""
    blob = zlib.compress(bytes(100))
    out = bytearray(b"II*\0" + struct.pack("<I", 8 + len(blob) + len(blob) % 2))
    out += blob + b"\0" * (len(blob) % 2)
    for number in range(frames):
        entries = [
            *((256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 8)),
            *((262, 3, 1, 1), (277, 3, 1, 1), (322, 4, 1, tile), (323, 4, 1, tile)),
            *((324, 4, 1, 8), (325, 4, 1, len(blob))),
        ]
        following = len(out) + 2 + 12 * len(entries) + 4
        out += struct.pack("<H", len(entries))
        out += b"".join(struct.pack("<HHII", *entry) for entry in entries)
        out += struct.pack("<I", following if number < frames - 1 else 0)
    return bytes(out)


def overlapping_directories(nbytes: int) -> bytes:
    """Directories of 10000 entries each, 14 bytes from one to the next."""
    out = bytearray(nbytes)
    out[:8] = b"II*\0\x08\0\0\0"
    count = 10_000
    span = 2 + 12 * count
    for at in range(8, nbytes - span - 4, 14):
        struct.pack_into("<H", out, at, count)
        struct.pack_into("<I", out, at + span, at + 14)
    return bytes(out)


def chain_of_directories(nbytes: int) -> bytes:
    """Valid directories that share 10000 entries, 12 bytes from one to the next."""
    count, start = 10_000, 8
    sizes = ((256, 16), (257, 16), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 16))
    tags = (*sizes, (279, 256))
    out = bytearray(b"II*\0" + struct.pack("<IH", start, count))
    for number in range((nbytes - len(out)) // 12):
        tag, value = tags[number % len(tags)] if number < count else (0, 0)
        head = struct.pack("<HH", tag, 3)
        if number >= count:
            head = struct.pack("<I", start + 12 * (number - count + 1))
        # The upper half of a value is the number of entries of the next directory.
        out += head + struct.pack("<IHH", 1, value, count)
    return bytes(out)


def png_with(chunks: bytes) -> bytes:
    """A picture of 16 by 16 pixels behind these chunks."""
    return png(16, 16, chunks, chunk(b"IDAT", zlib.compress(bytes(17 * 16))))


def animated_png(side: int, frames: int) -> bytes:
    """Frames that Pillow decodes to get at the next, from next to nothing."""
    data = zlib.compress(bytes((side + 1) * side))
    out = [chunk(b"acTL", struct.pack(">II", frames, 0))]
    sequence = 0
    for number in range(frames):
        out.append(
            chunk(b"fcTL", struct.pack(">IIIIIHHBB", sequence, side, side, 0, 0, 1, 1, 0, 0))
        )
        sequence += 1
        if number == 0:
            out.append(chunk(b"IDAT", data))
        else:
            out.append(chunk(b"fdAT", struct.pack(">I", sequence) + data))
            sequence += 1
    return png(side, side, *out)


def jpeg_of_scans(size: tuple[int, int], scans: int) -> bytes:
    body = BytesIO()
    Image.new("L", size, 100).save(body, "JPEG", progressive=True)
    whole = body.getvalue()
    scan = whole[whole.rfind(b"\xff\xda") : -2]
    return whole[:-2] + scan * scans + b"\xff\xd9"


def gif(screen: int, frames: int) -> bytes:
    """Tiny frames on a large screen, each of which Pillow pastes into the whole."""
    head = b"GIF89a" + struct.pack("<HHBBB", screen, screen, 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x4c\x01\x00"
    return head + frame * frames + b";"


BOMBS = {
    "bmp rle8": ("bmp", bmp(PILLOW_MAX_PIXELS, 1, b"\1\0" + b"\0\0" * 2)),
    "bmp rle8, tall": ("bmp", bmp(1, PILLOW_MAX_PIXELS, b"\0\0" * 3)),
    "bmp rle8, deltas": ("bmp", bmp(13_000, 13_000, b"\0\2\xff\xff" * 40)),
    "bmp rle4": ("bmp", bmp(PILLOW_MAX_PIXELS, 1, b"\1\0\0\0", compression=2, bits=4)),
    "tiff of overlapping directories": ("tiff", overlapping_directories(240_000)),
    "tiff of valid overlapping directories": ("tiff", chain_of_directories(240_000)),
    "tiff of small frames in large tiles": ("tiff", tiff(16, 16, 20_000, 2900)),
    "tiff in one tile of gigabytes": ("tiff", tiff(16, 16, 46_336, 1)),
    "tiff, many tiles below the limit": ("tiff", tiff(16, 16, 4096, 1000)),
    "jpeg of empty markers": ("jpeg", b"\xff\xd8" + b"\xff\xe1\0\2" * 1_500_000 + b"\xff\xd9"),
    "jpeg of comments": ("jpeg", b"\xff\xd8" + b"\xff\xfe\0\2" * 1_500_000 + b"\xff\xd9"),
    "jpeg of scans": ("jpeg", jpeg_of_scans((4000, 1000), 3000)),
    "png of damaged text": ("png", png_with(chunk(b"zTXt", b"a\0\0" + deflated_zeros(256)))),
    "gif of frames on a large screen": ("gif", gif(10_000, 3000)),
}

# Pillow decodes them in a bounded time, or is ended: both will do.
HEAVY = {
    "png of empty chunks": ("png", png_with(chunk(b"abCd", b"") * 500_000)),
    "png of empty data": ("png", png_with(chunk(b"IDAT", b"") * 300_000)),
    "png of frames": ("png", animated_png(1000, 170)),
    "png of text": (
        "png",
        png_with(chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20))) * 500),
    ),
}


@pytest.fixture(scope="module")
def default() -> Iterator[Any]:
    """A server with the limits of pixels that it has by default."""
    with serving(max_pixels=PILLOW_MAX_PIXELS, max_body_bytes=64 << 20) as server:
        yield server


def name_of(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).removeprefix("urn:mmhash:problem:")


# Refused only when their decoder has used the CPU time that their size allows.
COSTLY = {
    *("jpeg of empty markers", "jpeg of comments", "gif of frames on a large screen"),
    *("png of empty chunks", "png of frames", "png of text"),
}


def names(bombs: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow if name in COSTLY else []) for name in bombs]


@pytest.mark.parametrize("name", names(BOMBS))
def test_an_image_bomb_is_refused(default: Any, name: str) -> None:
    kind, body = BOMBS[name]
    assert refusal_of(default.hash(body, f"image/{kind}", of="pixels")) in REFUSALS


@pytest.mark.parametrize("name", names(HEAVY))
def test_a_heavy_image_ends_in_time(default: Any, name: str) -> None:
    kind, body = HEAVY[name]
    answer = default.hash(body, f"image/{kind}", of="pixels")
    assert answer.status_code == 200 or name_of(answer) in REFUSALS | {"too-slow"}


@pytest.mark.slow
def test_other_requests_are_answered_meanwhile(default: Any) -> None:
    """Small, honest requests during four bombs that use all of their CPU time."""
    # All different, because the service decodes equal images once.
    bombs = [jpeg_of_scans((4000, 1000 + 8 * number), 3000) for number in range(4)]
    photo = BytesIO()
    Image.effect_noise((320, 240), 30).save(photo, "PNG")
    wait_for_ready(default.client)  # before the bombs, with which decoders would share the cores
    data = base64.b64encode(b"abc").decode()
    with ThreadPoolExecutor(len(bombs)) as threads:
        answers = [
            threads.submit(
                httpx.post,
                default.client.base_url.join("/hash?of=pixels"),
                content=bomb,
                headers={"content-type": "image/jpeg"},
                timeout=60,
            )
            for bomb in bombs
        ]
        time.sleep(0.2)
        while not all(answer.done() for answer in answers):
            assert default.client.get("/ready").status_code == 200
            (item,) = items_of(default.hash_json({"kind": "bytes", "data": data}))
            assert item["digest"] == mmhash.digest(b"abc").hex()
            items_of(default.hash(bytes(8), dtype="uint8", shape="8"))
        assert all(name_of(answer.result()) in REFUSALS | {"too-slow"} for answer in answers)
        # An honest image right behind them.
        (item,) = items_of(default.hash(photo.getvalue(), "image/png", of="pixels"))
        with Image.open(photo) as image:
            assert item["key"] == mmhash.key(image).hex()


def flat_webp(number: int) -> bytes:
    """Three bytes for each of 640x480 pixels, from 48 bytes."""
    file = BytesIO()
    Image.new("RGB", (640, 480), (number, 0, 0)).save(file, "WEBP", lossless=True)
    return file.getvalue()


def noise(number: int) -> bytes:
    file = BytesIO()
    pixels = random.Random(number).randbytes(3 * 64 * 64)
    Image.frombytes("RGB", (64, 64), pixels).resize((640, 480)).save(file, "JPEG")
    return file.getvalue()


@pytest.mark.parametrize("form", ["json", "multipart"])
def test_many_small_files_of_many_pixels_are_not_all_decoded(form: str) -> None:
    def send(server: Any, files: Iterable[bytes]) -> httpx.Response:
        if form == "multipart":
            parts = [("image", (str(n), file, "image/webp")) for n, file in enumerate(files)]
            return server.client.post("/hash?of=pixels", files=parts)
        return server.hash_json(
            *({"kind": "image", "data": base64.b64encode(file).decode()} for file in files)
        )

    with serving(decoders=1) as server:
        assert refusal_of(send(server, map(flat_webp, range(40)))) == "too-many-items"
        assert send(server, map(noise, range(40))).status_code == 200
        # A few do not count as many, and known ones do not count.
        assert send(server, map(flat_webp, range(8))).status_code == 200
        assert send(server, [flat_webp(0)] * 40).status_code == 200
