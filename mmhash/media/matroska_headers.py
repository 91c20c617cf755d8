"""The elements of the headers of a plain Matroska or WebM file, and its tracks.

FFmpeg reads more of them, which can change the frames or be refused.
"""

from fractions import Fraction
from struct import unpack
from typing import Any

from mmhash.media.plain import UnusualError, require
from mmhash.media.recipe import VideoIndex

SEEK_HEAD, SEEK, SEEK_ID, SEEK_POSITION = 0x114D9B74, 0x4DBB, 0x53AB, 0x53AC
TRACKS, TRACK, NUMBER, TYPE, CODEC, ENCODINGS = 0x1654AE6B, 0xAE, 0xD7, 0x83, 0x86, 0x6D80
TAGS, VOID, CHECKSUM = 0x1254C367, 0xEC, 0xBF
_INFO, _TAG, _SIMPLE_TAG = 0x1549A966, 0x7373, 0x67C8
_DURATION, _PRIVATE, _DELAY, _PREROLL = 0x23E383, 0x63A2, 0x56AA, 0x56BB
_PICTURE, _WIDTH, _HEIGHT, _COLOR = 0xE0, 0xB0, 0xBA, 0x55B0
_SOUND, _CHANNELS, _RATE, _DEPTH = 0xE1, 0x9F, 0xB5, 0x6264

# The headers of files: the version of EBML, the length of its ids and sizes, the kind of file and
# its versions.
FILES = {
    bytes.fromhex("42868101 42f78101 42f28104 42f38108 4282")
    + kind
    + bytes((0x42, 0x87, 0x81, version, 0x42, 0x85, 0x81, reader))
    for kind in (b"\x88matroska", b"\x84webm")
    for version in (2, 3, 4)
    for reader in (1, 2)
}

# The elements of headers, with what they contain: a number, a float, text, bytes or elements.
Schema = dict[int, Any]
HEADERS: Schema = {
    SEEK_HEAD: {SEEK: {SEEK_ID: "number", SEEK_POSITION: "number"}},
    _INFO: dict.fromkeys((0x4D80, 0x5741, 0x7BA9), "text")
    | {0x2AD7B1: "number", 0x4489: "float", 0x73A4: "bytes"},
    TRACKS: {
        TRACK: dict.fromkeys((NUMBER, 0x73C5, TYPE, 0x9C, 0xB9, 0x88, 0x55AA, 0x55EE), "number")
        | dict.fromkeys((_DURATION, _DELAY, _PREROLL), "number")
        | dict.fromkeys((CODEC, 0x22B59C, 0x536E), "text")
        | {_PRIVATE: "bytes"}
        | {
            _PICTURE: dict.fromkeys((_WIDTH, _HEIGHT, 0x54B0, 0x54BA, 0x54B2, 0x9A), "number")
            | {_COLOR: dict.fromkeys(range(0x55B1, 0x55BC), "number")}
        }
        | {_SOUND: {_CHANNELS: "number", _RATE: "float", _DEPTH: "number"}}
    },
    TAGS: {
        _TAG: {
            0x63C0: {0x63C5: "number", 0x68CA: "number"},
            _SIMPLE_TAG: dict.fromkeys((0x45A3, 0x4487, 0x447A), "text"),
        }
    },
}
REPEATED = {SEEK, TRACK, _TAG, _SIMPLE_TAG}

VIDEO, _AUDIO, _SUBTITLE = 1, 2, 17
# FFmpeg returns a packet for each block of these. Of those that can lack their configuration, it
# looks for one in the first packet and refuses the file if there is none.
VIDEO_CODECS = {b"V_MPEG4/ISO/AVC", b"V_MPEGH/ISO/HEVC", b"V_VP8", b"V_VP9", b"V_AV1"}
_WITHOUT_CONFIGURATION = {b"V_VP8", b"V_VP9"}
_SOUND_CODECS = {
    *(b"A_AAC", b"A_OPUS", b"A_VORBIS", b"A_FLAC"),
    *(b"A_MPEG/L3", b"A_AC3", b"A_EAC3"),
}
_SUBTITLE_CODECS = {b"S_TEXT/UTF8"}
_NOT_OF_VIDEOS = {_SOUND, _DELAY, _PREROLL}
_NOT_OF_SUBTITLES = {_PICTURE, *_NOT_OF_VIDEOS}

# As FFmpeg has to read them.
MAX_NUMBER = 126  # in one byte
_MAX_TRACKS = 16
_MAX_TEXT = 1 << 12
_MAX_SIDE = (1 << 16) - 1
_MAX_CHANNELS = 8
_MAX_RATE = float(1 << 20)
_MAX_DELAY = 10**9
# FFmpeg rounds rates to fractions of numbers up to this.
_MAX_RATIO = 30_000


def read_value(content: bytes, kind: str) -> float | bytes:
    """Return the value of an element of a header, other than a number."""
    if kind == "float":
        require(len(content) in {4, 8})
        (value,) = unpack(">f" if len(content) == 4 else ">d", content)
        return float(value)
    if kind == "text":
        # PyAV refuses other encodings.
        require(len(content) <= _MAX_TEXT and content.isascii())
    return content


def read_video(tracks: list[dict[int, Any]], blocks: bytearray) -> VideoIndex:
    """Return the index of the only video, by the tracks' headers and the first byte of each block.

    That is the number of its track, with 0x80.
    """
    numbers = bytearray()
    video = None
    for track in tracks:
        number, kind = track[NUMBER], track[TYPE]
        require(0 < number <= MAX_NUMBER and 0x80 + number not in numbers)
        numbers.append(0x80 + number)
        if kind == VIDEO:
            require(video is None)
            video = track
        elif kind == _AUDIO:
            _check_sound(track)
        else:
            require(kind == _SUBTITLE and track[CODEC] in _SUBTITLE_CODECS)
            require(_NOT_OF_SUBTITLES.isdisjoint(track))
    if video is None or len(numbers) > _MAX_TRACKS or blocks.translate(None, bytes(numbers)):
        raise UnusualError  # the last: blocks of no track
    return _video_index(video, blocks.count(0x80 + video[NUMBER]))


def _video_index(track: dict[int, Any], frames: int) -> VideoIndex:
    width, height = track[_PICTURE][_WIDTH], track[_PICTURE][_HEIGHT]
    require(track[CODEC] in VIDEO_CODECS and _NOT_OF_VIDEOS.isdisjoint(track))
    require(track[CODEC] in _WITHOUT_CONFIGURATION or track[_PRIVATE])
    require(0 < width <= _MAX_SIDE and 0 < height <= _MAX_SIDE)
    require(10**6 <= track[_DURATION] <= 10**9)
    require(frames)
    rate = Fraction(10**9, track[_DURATION])
    if rate.numerator > _MAX_RATIO:
        rate = 1 / (1 / rate).limit_denominator(_MAX_RATIO)
    return VideoIndex(frames, rate, width, height)


def _check_sound(track: dict[int, Any]) -> None:
    """Check that FFmpeg accepts the header of a sound."""
    sound = track[_SOUND]
    require(track[CODEC] in _SOUND_CODECS and _PICTURE not in track)
    require(1 <= sound[_CHANNELS] <= _MAX_CHANNELS and 1.0 <= sound[_RATE] <= _MAX_RATE)
    require(track.get(_DELAY, 0) <= _MAX_DELAY and track.get(_PREROLL, 0) <= _MAX_DELAY)
