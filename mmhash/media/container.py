"""Reads the index of a container: its streams, without decoding a frame.

FFmpeg gets the source as a buffer, so it opens no path or address named in a file. FFmpeg reads
only the formats listed here, because some formats are playlists of other files. No decoder is
allowed, which is safer, and keeps FFmpeg from decoding the first frames.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from io import BytesIO
from typing import Any

from mmhash.errors import InputError, InputValueError, LimitError
from mmhash.media.recipe import MAX_DIMENSION, MAX_FRAMES, AudioIndex, VideoIndex

Buffer = bytes | bytearray | memoryview | mmap.mmap

FORMATS = "mov,matroska,webm,wav,flac,mp3,ogg"
MAX_STREAMS = "16"
_OPTIONS = {
    "format_whitelist": FORMATS,
    "protocol_whitelist": "none",
    "max_streams": MAX_STREAMS,
    "fpsprobesize": "0",
    "codec_whitelist": "none",
}
# Without a decoder, FFmpeg reads 40 packets of Matroska to find a time stamp, which takes longer
# than everything else. Only a frame rate that no header declares needs these packets.
_ONE_PACKET = {"max_ts_probe": "0"}

# How many boxes of an MP4 are searched for a fragment.
_MAX_BOXES = 10_000


@contextmanager
def open_container(source: Buffer, *, packets: bool = True) -> Iterator[Any]:
    """Open a container; convert FFmpeg's errors to `InputValueError`."""
    try:
        import av  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise InputError("videos and audio clips need PyAV: install mmhash-keys[media]") from error
    file = source if isinstance(source, mmap.mmap) else BytesIO(source)
    file.seek(0)
    options = _OPTIONS | ({} if packets else _ONE_PACKET)
    try:
        with av.open(file, container_options=options) as container:
            yield container
    except InputError:
        raise
    except (av.FFmpegError, ArithmeticError, ValueError, IndexError, UnicodeError) as error:
        # The message names no path: the source is a buffer.
        raise InputValueError(f"the media cannot be read: {error}") from error


def read_video_index(source: Buffer) -> VideoIndex:
    """Return the index of the first video stream."""
    with open_container(source, packets=False) as container:
        stream = first_stream(container, "video")
        if stream.average_rate:
            return _video_index(source, container, stream)
    with open_container(source) as container:
        return _video_index(source, container, first_stream(container, "video"))


def _video_index(source: Buffer, container: Any, stream: Any) -> VideoIndex:
    width, height = stream.codec_context.width, stream.codec_context.height
    if not (0 < width <= MAX_DIMENSION and 0 < height <= MAX_DIMENSION):
        raise InputValueError("the video has no size")
    rate = stream.average_rate or stream.guessed_rate
    frames = _indexed_frames(source, container, stream)
    if frames is None:
        frames = sum(1 for _ in _packets(container, stream))
    if frames == 0:
        raise InputValueError("the video has no frames")
    if frames > MAX_FRAMES:
        raise LimitError(f"the video has more than {MAX_FRAMES} frames")
    if not rate or rate <= 0:
        raise InputValueError("the video has no frame rate")
    return VideoIndex(frames, Fraction(rate), width, height)


def read_audio_index(source: Buffer) -> AudioIndex:
    """Return the index of the first audio stream.

    Samples are counted from the packets, because a header may state a false end. A range that is
    cut off there would have the key of another range.
    """
    with open_container(source) as container:
        stream = first_stream(container, "audio")
        rate, channels = stream.rate, stream.channels
        if not (0 < rate <= MAX_DIMENSION and 0 < channels <= 64):
            raise InputValueError("the audio has no sample rate or no channels")
        ticks = skipped = 0
        for packet in _packets(container, stream):
            ticks += max(0, packet.duration or 0)
            if packet.has_sidedata("skip_samples"):
                skipped += _skipped_samples(bytes(packet.get_sidedata("skip_samples")))
        samples = int(ticks * Fraction(stream.time_base) * rate) - skipped
        if samples <= 0:
            raise InputValueError("the audio has no samples")
        return AudioIndex(samples, rate, channels)


def first_stream(container: Any, kind: str) -> Any:
    """Return the first stream of a kind."""
    stream = next((each for each in container.streams if each.type == kind), None)
    if stream is None:
        raise InputValueError(f"the media has no {kind}")
    if stream.codec_context is None:  # FFmpeg has no name for the codec
        raise InputValueError(f"the codec of the {kind} is not known")
    if not stream.time_base:
        raise InputValueError("the media has no time base")
    return stream


def _packets(container: Any, stream: Any) -> Iterator[Any]:
    """Yield the packets of a stream that carry data."""
    number = 0
    for packet in container.demux(stream):
        if packet.size:
            number += 1
            if number > MAX_FRAMES:
                raise LimitError(f"the media has more than {MAX_FRAMES} packets")
            yield packet


def _indexed_frames(source: Buffer, container: Any, stream: Any) -> int | None:
    """Return the number of frames that the container's structure states, or None."""
    if "mp4" not in container.format.name:
        return None
    entries = stream.index_entries
    if stream.frames != len(entries) or not stream.frames or _has_fragments(source):
        return None
    if len(entries) > MAX_FRAMES:
        raise LimitError(f"the video has more than {MAX_FRAMES} frames")
    for entry in entries:
        # An edit list discards frames, and a truncated file lacks some.
        if entry.is_discard or entry.pos + entry.size > len(source):
            return None
    return len(entries)


def _has_fragments(source: Buffer) -> bool:
    """Return True if an MP4 has frames outside its index, or boxes that cannot be followed."""
    view = memoryview(source)
    start = 0
    for _ in range(_MAX_BOXES):
        if start + 8 > len(view):
            return False
        length, kind = int.from_bytes(view[start : start + 4]), bytes(view[start + 4 : start + 8])
        if kind == b"moof":
            return True
        if length == 1:
            length = int.from_bytes(view[start + 8 : start + 16])
        elif length == 0:
            return False
        if length < 8:
            return True
        start += length
    return True


def _skipped_samples(sidedata: bytes) -> int:
    """Return how many samples of a packet a decoder drops: the padding of an encoder."""
    return int.from_bytes(sidedata[:4], "little") + int.from_bytes(sidedata[4:8], "little")
