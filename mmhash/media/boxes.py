"""Boxes of MP4 and MOV files, and the tables in them."""

from collections.abc import Container, Iterator
from struct import Struct, unpack_from

from mmhash.media.plain import Buffer, UnusualError, require

_read_header = Struct(">I4s").unpack_from
_read_number = Struct(">I").unpack_from

# The bytes of a number in a table, by its format.
_SIZES = {"I": 4, "i": 4, "Q": 8}

# Of each level. A film has a few at the top, and a track ten.
_MAX_BOXES = 32
# More than an hour at 30 frames per second; of longer films, hashing takes almost all the time.
MAX_ROWS = 1 << 17

Span = tuple[int, int]
"""The start and end of a box's content."""

Ints = tuple[int, ...]


def read_boxes(data: Buffer, start: int, end: int) -> list[tuple[bytes, int, int]]:
    """Return the kind and content of the boxes that fill the bytes from `start` to `end`."""
    boxes: list[tuple[bytes, int, int]] = []
    while start < end:
        size, kind = _read_header(data, start)
        header = 8
        if size == 1:
            (size,) = unpack_from(">Q", data, start + 8)
            header = 16
        if not header <= size <= end - start or len(boxes) == _MAX_BOXES:
            raise UnusualError
        boxes.append((kind, start + header, start + size))
        start += size
    require(boxes)
    return boxes


def children(
    data: Buffer, span: Span, kinds: Container[bytes] | Iterator[bytes]
) -> dict[bytes, Span]:
    """Return the boxes in a box by kind: each is one of `kinds`, and no kind is there twice.

    If `kinds` is an iterator, the boxes are in its order.
    """
    start, end = span
    found: dict[bytes, Span] = {}
    while start < end:
        size, kind = _read_header(data, start)
        if not 8 <= size <= end - start or kind in found or kind not in kinds:
            raise UnusualError
        found[kind] = start + 8, start + size
        start += size
    return found


def count_rows(data: Buffer, span: Span, row_size: int, header: int = 8) -> int:
    """Return the number of rows of a table, which is at the end of its header."""
    start, end = span
    (rows,) = _read_number(data, start + header - 4)
    require(0 < rows <= MAX_ROWS and end - start == header + rows * row_size)
    return int(rows)


def read_table(data: Buffer, span: Span, form: str, *, columns: int = 1) -> Ints:
    """Return the numbers of a table."""
    numbers = columns * count_rows(data, span, columns * _SIZES[form])
    return unpack_from(f">{numbers}{form}", data, span[0] + 8)


def read_runs(data: Buffer, span: Span, form: str, samples: int) -> tuple[Ints, Ints]:
    """Return the length of each run of a table of runs, and its value."""
    table = read_table(data, span, form, columns=2)
    lengths, values = table[::2], table[1::2]
    require(min(lengths) > 0 and sum(lengths) == samples)
    return lengths, values
