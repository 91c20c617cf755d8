"""The header of an AVIF: the size and the orientation of its primary item."""

import struct
from collections.abc import Iterator

from mmhash.prompts.headers.header import ImageHeader, check_steps, unreadable

# The EXIF orientation for each irot (counterclockwise quarter turns) and imir (0: top to bottom, 1:
# left to right, None: not mirrored). The mirroring comes last.
_ORIENTATIONS = {
    (0, None): 1,
    (1, None): 8,
    (2, None): 3,
    (3, None): 6,
    (0, 1): 2,
    (0, 0): 4,
    (1, 0): 5,
    (1, 1): 7,
    (2, 1): 4,
    (2, 0): 2,
    (3, 0): 7,
    (3, 1): 5,
}

_MONOCHROME = 0x10

_Box = tuple[bytes, memoryview]


def accepts(start: bytes) -> bool:
    """Return True for the first bytes of an AVIF image. A sequence (avis) is not supported."""
    return start[4:8] == b"ftyp" and start[8:12] in {b"avif", b"mif1"}


def read(data: memoryview) -> ImageHeader:
    """Return the header of an AVIF."""
    meta = _child(_boxes(data), b"meta")[4:]
    properties = _child(_boxes(meta), b"iprp")
    primary = _child(_boxes(meta), b"pitm")
    item = int.from_bytes(primary[4:6] if primary[0] == 0 else primary[4:8], "big")
    known = list(_boxes(_child(_boxes(properties), b"ipco")))
    size: tuple[int, int] | None = None
    turn, mirror = 0, None
    for index in _associations(_child(_boxes(properties), b"ipma"), item):
        if not 0 < index <= len(known):
            continue
        name, content = known[index - 1]
        if name == b"ispe":
            size = struct.unpack_from(">LL", content, 4)
        elif name == b"irot":
            turn = content[0] & 3
        elif name == b"imir":
            mirror = content[0] & 1
    if size is None:
        raise unreadable("the AVIF does not state the size of its primary item")
    orientation = _ORIENTATIONS[turn, mirror]
    # Pillow ignores an orientation in EXIF, but applies one in XMP if the image has no irot or
    # imir.
    if orientation == 1 and _has_xmp(meta):
        raise unreadable(
            "the AVIF has XMP, which may rotate it: remove the XMP, or use irot and imir"
        )
    # The transparency may be in another item, and Pillow's releases decode grey to either L or RGB.
    is_alone = bytes(_child(_boxes(meta), b"iinf")).count(b"av01") == 1
    is_special = any(
        name == b"auxC" or (name == b"av1C" and content[2] & _MONOCHROME) for name, content in known
    )
    is_rgb = True if is_alone and not is_special else None
    return ImageHeader("AVIF", *size, orientation, is_rgb)


def _has_xmp(meta: memoryview) -> bool:
    return b"application/rdf+xml" in bytes(_child(_boxes(meta), b"iinf"))


def _child(boxes: Iterator[_Box], name: bytes) -> memoryview:
    for found, content in boxes:
        if found == name:
            return content
    raise unreadable(f"the AVIF has no {name.decode()} box")


def _boxes(data: memoryview) -> Iterator[_Box]:
    position = steps = 0
    while position + 8 <= len(data):
        steps += 1
        check_steps(steps)
        length, name = struct.unpack_from(">L4s", data, position)
        head = 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, position + 8)
            head = 16
        elif length == 0:
            length = len(data) - position
        if length < head or position + length > len(data):
            raise unreadable("a box of the AVIF is longer than the file")
        yield name, data[position + head : position + length]
        position += length


def _associations(content: memoryview, item: int) -> Iterator[int]:
    """Yield the numbers of an item's properties, counted from 1."""
    version, wide = content[0], content[3] & 1
    id_bytes, index_bytes = 2 if version == 0 else 4, 2 if wide else 1
    (count,) = struct.unpack_from(">L", content, 4)
    position = 8
    for number in range(count):
        check_steps(number)
        found = int.from_bytes(content[position : position + id_bytes], "big")
        position += id_bytes
        amount = content[position]
        position += 1
        for _ in range(amount if found == item else 0):
            value = int.from_bytes(content[position : position + index_bytes], "big")
            yield value & (0x7FFF if wide else 0x7F)
            position += index_bytes
        if found == item:
            return
        position += amount * index_bytes
