"""The header of a GIF: the size of its screen, or of the first frame if that is larger."""

from mmhash.prompts.headers.header import ImageHeader, check_steps, unreadable

_EXTENSION, _FRAME, _END = 0x21, 0x2C, 0x3B
_COMMENT, _APPLICATION = 0xFE, 0xFF


def read(data: memoryview) -> ImageHeader:
    """Return the header of a GIF."""
    flags = data[10]
    position, steps = 13 + _palette_bytes(flags), 0
    while (block := data[position]) != _FRAME:
        steps += 1
        check_steps(steps)
        if block == _END:
            raise unreadable("the GIF has no frame")
        if block != _EXTENSION:
            position += 1
            continue
        if _reads_on(data, position):
            raise unreadable("an extension of the GIF has no content")
        position += 2
        while length := data[position]:
            steps += 1
            check_steps(steps)
            position += 1 + length
        position += 1
    left, top, width, height = (_short(data, position + 1 + 2 * index) for index in range(4))
    if _palette_bytes(data[position + 9]) + position + 10 >= len(data):
        raise unreadable("the file is truncated")
    return ImageHeader(
        "GIF",
        max(_short(data, 6), left + width),
        max(_short(data, 8), top + height),
        is_rgb=False,  # Pillow keeps the first frame in palette mode
    )


def _reads_on(data: memoryview, position: int) -> bool:
    """Return True if Pillow and other decoders disagree about where an extension ends.

    Pillow reads the first block, and then skips blocks up to an empty one, even if the first block
    was already empty.
    """
    label, length = data[position + 1], data[position + 2]
    if label == _APPLICATION and bytes(data[position + 3 :][: min(length, 11)]) == b"NETSCAPE2.0":
        return data[position + 3 + length] == 0
    return label != _COMMENT and length == 0


def _palette_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _short(data: memoryview, position: int) -> int:
    return data[position] | data[position + 1] << 8
