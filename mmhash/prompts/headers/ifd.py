"""Directories of TIFF files and of EXIF."""

import struct
from typing import Any

# The size and struct format of a value for each type. Strings and bytes are not numbers.
_TYPES = {
    1: (1, ""),
    2: (1, ""),
    3: (2, "H"),
    4: (4, "L"),
    5: (8, "2L"),
    6: (1, "b"),
    7: (1, ""),
    8: (2, "h"),
    9: (4, "l"),
    10: (8, "2l"),
    11: (4, "f"),
    12: (8, "d"),
    13: (4, "L"),
    16: (8, "Q"),
}

_ORDERS = {
    b"MM\0*": (">", False),
    b"II*\0": ("<", False),
    b"MM*\0": (">", False),
    b"II\0*": ("<", False),
    b"MM\0+": (">", True),
    b"II+\0": ("<", True),
}


def start_of_directory(head: memoryview | bytes) -> tuple[str, bool, int]:
    """Return the byte order, True for BigTIFF, and the offset of the first directory."""
    start = bytes(head[:4])
    if start not in _ORDERS:
        raise ValueError("not a TIFF file")
    order, _ = _ORDERS[start]
    # Pillow looks at the third byte only, so `MM\0+` counts as an old TIFF.
    big = start[2] == 43
    return order, big, struct.unpack_from(order + ("Q" if big else "L"), head, 8 if big else 4)[0]


def read_directory(
    data: memoryview, order: str, big: bool, start: int, wanted: set[int]
) -> dict[int, Any]:
    """Return the values of the wanted tags: numbers, or bytes for strings and bytes.

    Like Pillow, keep the first value of a tag, skip a value larger than the file, and stop at a
    value that the file cuts off. Stop after the last wanted tag.
    """
    count, entry = (
        (8, struct.Struct(order + "HHQ8s")) if big else (2, struct.Struct(order + "HHL4s"))
    )
    inline = 8 if big else 4
    if start + count > len(data):
        return {}
    (entries,) = struct.unpack_from(order + ("Q" if big else "H"), data, start)
    values: dict[int, Any] = {}
    seen: set[int] = set()
    total = 0
    # Count no more entries than fit in the file: a BigTIFF can claim 2**64.
    entries = min(entries, (len(data) - start - count) // entry.size, 1 << 16)
    for number in range(entries):
        tag, kind, amount, content = entry.unpack_from(data, start + count + number * entry.size)
        if tag in seen or kind not in _TYPES:
            continue
        size = amount * _TYPES[kind][0]
        if size > inline:
            (offset,) = struct.unpack(order + ("Q" if big else "L"), content)
            if offset >= 1 << 63:
                continue
            total += size
            if total > len(data):
                continue
            if offset + size > len(data):
                break
            content = data[offset : offset + size]
        else:
            content = content[:size]
        if not size:
            continue
        seen.add(tag)
        if tag in wanted:
            values[tag] = _value(order, kind, content)
    return values


def count_entries(data: memoryview, order: str, big: bool, start: int) -> int:
    """Return the number of tags in a directory, or 0 if it lies beyond the end of the data."""
    try:
        (entries,) = struct.unpack_from(order + ("Q" if big else "H"), data, start)
    except struct.error:
        return 0
    return int(entries)


def _value(order: str, kind: int, content: memoryview | bytes) -> Any:
    """Return the first number of a value, or its bytes if it is a string."""
    size, letters = _TYPES[kind]
    if not letters:
        return bytes(content)
    numbers = struct.unpack(order + letters, bytes(content[:size]))
    if len(numbers) == 1:
        return numbers[0]
    return numbers[0] / numbers[1] if numbers[1] else None
