"""Descriptions of the samples of a track of an MP4 or MOV file: its codec and size."""

from struct import unpack_from

from mmhash.media.boxes import Span, read_boxes
from mmhash.media.plain import UnusualError, require

# The configuration that each kind of sample has.
_VIDEOS = {
    b"avc1": b"avcC",
    b"hvc1": b"hvcC",
    b"hev1": b"hvcC",
    b"av01": b"av1C",
    b"vp09": b"vpcC",
}
_SOUNDS = {
    b"mp4a": b"esds",
    b"Opus": b"dOps",
    b"fLaC": b"dfLa",
    b"ac-3": b"dac3",
    b"ec-3": b"dec3",
}
_MAX_CONFIGURATION = 1 << 16
_MAX_CHANNELS = 8

# Of MPEG-4: the descriptors of a stream, of its decoder and of what is specific to that, and the
# decoders.
_STREAM, _DECODER, _SPECIFIC = 3, 4, 5
_AAC, _MP3 = 0x40, {0x69, 0x6B}


def read_video_size(movie: bytes, span: Span) -> tuple[int, int]:
    """Return the width and height of the frames."""
    kind, entry = _only_entry(movie, span)
    # A name that FFmpeg reads as another codec; a palette.
    require(entry[51:57] != b"Planar" and entry[82:86] == b"\0\x18\xff\xff")
    (first, start, end), *others = read_boxes(entry, 86, len(entry))
    require(first == _VIDEOS[kind] and entry[start] in {0x01, 0x81})
    require(8 <= end - start < _MAX_CONFIGURATION)
    if first == b"vpcC":  # its end is the length of what may follow
        require(end - start == 12 and entry[start + 10 : end] == bytes(2))
    for other, start, end in others:
        if other == b"colr":
            require(entry[start : start + 4] in {b"nclx", b"nclc"} and end - start >= 10)
        else:
            require(other in {b"pasp", b"btrt", b"fiel"} and end - start >= 2)
    width, height = unpack_from(">2H", entry, 32)
    require(width and height)
    return width, height


def check_sound(movie: bytes, span: Span) -> None:
    """Check that FFmpeg accepts the description of a sound, which does not change the video."""
    kind, entry = _only_entry(movie, span)
    version, channels, rate = unpack_from(">H6xH6xH", entry, 16)
    require(version <= 1 and 1 <= channels <= _MAX_CHANNELS and rate)
    boxes = read_boxes(entry, 36 + 16 * version, len(entry))
    if boxes[0][0] == b"wave":  # in MOV, with the kind again and an empty box at the end
        (first, start, end), *inner, last = read_boxes(entry, *boxes[0][1:])
        require(first == b"frma" and entry[start:end] == kind and last[0] == bytes(4))
        if inner[0][0] == b"mp4a":
            del inner[0]
        boxes[:1] = inner
    (first, start, end), *others = boxes
    require(first == _SOUNDS[kind] and _is_configuration(first, entry[start:end]))
    for other, start, end in others:
        # The positions of channels are a number, and not a list.
        positions = other == b"chan" and end - start == 16 and entry[start + 12 : end] == bytes(4)
        require(positions or (other == b"btrt" and end - start == 12))


def _only_entry(movie: bytes, span: Span) -> tuple[bytes, bytes]:
    """Return the kind and the bytes of the only description in a table of them."""
    start, end = span
    version, count, size, kind = unpack_from(">3I4s", movie, start)
    require((version, count, size) == (0, 1, end - start - 8))
    return kind, movie[start + 8 : end]


def _is_configuration(kind: bytes, content: bytes) -> bool:
    match kind:
        case b"esds":
            return _is_aac_or_mp3(content)
        case b"dOps":
            return len(content) == 11 and content[0] == 0
        case b"dfLa":  # the header of the stream, in one block
            return len(content) == 42 and content[:8] == bytes.fromhex("00000000 80000022")
        case b"dac3":
            return len(content) == 3
        case _:
            return len(content) == 5


def _is_aac_or_mp3(content: bytes) -> bool:
    stream, _ = _descriptor(content, 4, _STREAM)
    decoder, _ = _descriptor(content, stream + 3, _DECODER)
    require(content[stream + 2] == 0)  # no fields between the two
    if content[decoder] != _AAC:
        return content[decoder] in _MP3
    start, end = _descriptor(content, decoder + 13, _SPECIFIC)
    specific = content[start:end]
    (bits,) = unpack_from(">H", specific)
    profile, rate, channels = bits >> 11, bits >> 7 & 15, bits >> 3 & 15
    return (
        profile == 2  # low complexity
        and rate <= 12
        and 1 <= channels <= 7
        and bits & 7 == 0
        and specific[2:] in {b"", b"\x56\xe5\x00"}  # no spectral band replication
        and len(specific) == end - start
    )


def _descriptor(content: bytes, start: int, tag: int) -> Span:
    """Return the start and end of a descriptor's content; its size has up to four bytes."""
    require(content[start] == tag)
    size = 0
    for position in range(start + 1, start + 5):
        size = size << 7 | content[position] & 0x7F
        if content[position] < 0x80:
            return position + 1, position + 1 + size
    raise UnusualError
