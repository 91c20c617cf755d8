"""A TIFF whose directories lead in a circle, whose tags claim gigabytes, or whose strips lie elsewhere.

Frames and pixels are counted before any is decoded, and any error of Pillow is one problem.
"""

import struct
from typing import Any

import pytest

from tests.support.responses import items_of, refusal_of

SHORT, LONG = 3, 4


def directory(*entries: tuple[int, int, int, int], next_at: int = 0) -> bytes:
    ordered = b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    return struct.pack("<H", len(entries)) + ordered + struct.pack("<I", next_at)


def tags(
    width: int = 2, height: int = 2, **more: tuple[int, int, int, int]
) -> list[tuple[int, int, int, int]]:
    found = {
        "width": (256, LONG, 1, width),
        "height": (257, LONG, 1, height),
        "bits": (258, SHORT, 1, 8),
        "compression": (259, SHORT, 1, 1),
        "photometric": (262, SHORT, 1, 1),
        "strips": (273, LONG, 1, 8),
        "samples": (277, SHORT, 1, 1),
        "rows": (278, LONG, 1, height),
        "counts": (279, LONG, 1, width * height & 0xFFFFFFFF),
    }
    return list({**found, **more}.values())


def tiff(*directories: bytes, first: int = 12) -> bytes:
    return b"II*\0" + struct.pack("<I", first) + b"abcd" + b"".join(directories)


CASES = {
    "pixels": tiff(directory(*tags(width=2**31 - 1, height=2**31 - 1))),
    "strips": tiff(directory(*tags(strips=(273, LONG, 2**28, 0), counts=(279, LONG, 2**28, 0)))),
    "samples": tiff(directory(*tags(samples=(277, SHORT, 1, 65_535)))),
    "offset": tiff(directory(*tags(strips=(273, LONG, 1, 2**32 - 1)))),
    "nowhere": tiff(first=2**32 - 1),
    "many": tiff(
        *(
            directory(*tags(width=64, height=64), next_at=12 + 114 * (number + 1))
            for number in range(5000)
        )
    ),
}

HARMLESS = {
    "leads to itself": (1, tiff(directory(*tags(), next_at=12))),
    "circle": (2, tiff(directory(*tags(), next_at=126), directory(*tags(), next_at=12))),
    "a tag of 4 GiB": (1, tiff(directory(*tags(extra=(700, 1, 2**32 - 1, 0))))),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_data_that_no_pixel_needs_is_not_read(server: Any, name: str) -> None:
    frames, body = HARMLESS[name]
    (item,) = items_of(server.hash(body, "image/tiff", of="pixels"))
    assert item["shape"] == [frames]
    assert item["nbytes"] == 4 * frames


@pytest.mark.parametrize("name", CASES)
def test_a_tiff_bomb_is_refused(server: Any, name: str) -> None:
    before = server.memory()
    answer = server.hash(CASES[name], "image/tiff", of="pixels")
    assert refusal_of(answer) in {"media-too-large", "damaged-media"}
    assert server.memory() - before < 128 << 20
