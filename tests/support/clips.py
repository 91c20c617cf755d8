"""Small media files, written with PyAV: noise, so that no two frames or samples are equal."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from io import BytesIO
from itertools import accumulate, cycle, islice
from pathlib import Path
from typing import Any

import av
import numpy as np

VIDEOS = {
    "h264.mp4": ("mp4", "libx264", {"preset": "ultrafast", "crf": "20", "bf": "2"}),
    "h264-fragmented.mp4": (
        "mp4",
        "libx264",
        {"preset": "ultrafast", "movflags": "frag_keyframe+empty_moov"},
    ),
    "vp9.webm": ("webm", "libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}),
    "av1.mkv": ("matroska", "libsvtav1", {"preset": "12"}),
}
AUDIOS = {
    "pcm.wav": ("wav", "pcm_s16le"),
    "flac.flac": ("flac", "flac"),
    "mp3.mp3": ("mp3", "libmp3lame"),
}
# The sounds of films.
SOUNDS = AUDIOS | {
    "aac.mp4": ("mp4", "aac"),
    "opus.ogg": ("ogg", "libopus"),
    "vorbis.ogg": ("ogg", "vorbis"),
    "ac3.ac3": ("ac3", "ac3"),
    "eac3.eac3": ("eac3", "eac3"),
}


def make_video(
    name: str,
    frames: int = 24,
    *,
    rate: int = 12,
    size: tuple[int, int] = (64, 48),
    options: dict[str, str] | None = None,
    seed: int = 0,
    sound: bytes | None = None,
) -> bytes:
    """Return a file of one of the kinds in `VIDEOS`, with a sound as the second track if given."""
    container_format, codec, defaults = VIDEOS[name]
    chosen = defaults | (options or {})
    movflags = {key: value for key, value in chosen.items() if key == "movflags"}
    file = BytesIO()
    random = np.random.default_rng(seed)
    with (
        _kept_scheduling(),
        av.open(file, "w", format=container_format, options=movflags) as container,
    ):
        codec_options = {key: value for key, value in chosen.items() if key != "movflags"}
        stream: Any = container.add_stream(codec, rate=rate, options=codec_options)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        source: Any = None if sound is None else av.open(BytesIO(sound))
        second: Any = source and container.add_stream_from_template(source.streams[0])
        for _ in range(frames):
            # Blocks of 8 pixels survive compression.
            blocks = random.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
            picture = blocks.repeat(8, 0).repeat(8, 1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
        for packet in source.demux() if source else ():
            if packet.size:
                packet.stream = second
                container.mux(packet)
    return file.getvalue()


@contextmanager
def _kept_scheduling() -> Iterator[None]:
    """Keep the scheduling of this thread.

    SVT-AV1 makes a thread of root a real-time one of the highest priority. All threads and processes
    that it starts inherit that: they never share a core, and tests wait for each other in vain.
    """
    if sys.platform != "linux":
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def remux(
    film: bytes,
    sound: bytes | None = None,
    container_format: str = "matroska",
    *,
    last: bool = False,
    delay: Fraction = Fraction(0),
    **options: str,
) -> bytes:
    """Return a film in another container, with a sound or text before or after it.

    The sound starts after the delay.
    """
    out = BytesIO()
    with av.open(out, "w", format=container_format, options=options) as target:
        sources = [(sound, delay), (film, Fraction(0))]
        sources.sort(key=lambda each: last and each[0] is sound)
        opened: list[Any] = [(av.open(BytesIO(each)), wait) for each, wait in sources if each]
        streams = [target.add_stream_from_template(source.streams[0]) for source, _ in opened]
        pieces = []
        for number, (source, wait) in enumerate(opened):
            for packet in source.demux():
                if packet.dts is not None:
                    packet.pts += int(wait / packet.time_base)
                    packet.dts += int(wait / packet.time_base)
                    pieces.append((packet.dts * packet.time_base, number, packet))
        for _, number, packet in sorted(pieces, key=lambda piece: piece[:2]):
            packet.stream = streams[number]
            target.mux(packet)
    return out.getvalue()


def rewrite_video(
    film: bytes,
    container_format: str,
    *,
    path: Path | None = None,
    base: int = 12_800,
    start: int = 0,
    durations: Sequence[int] = (512,),
    frames: int | None = None,
    options: dict[str, str] | None = None,
) -> bytes:
    """Return the packets of a video in another container, with other times in 1 / `base` seconds.

    Only a file at a path can have its index at the front.
    """
    out: Any = BytesIO() if path is None else str(path)
    opened: Any = av.open(BytesIO(film))
    source = opened.streams.video[0]
    packets = [packet for packet in opened.demux(source) if packet.size][:frames]
    ranks = {pts: rank for rank, pts in enumerate(sorted(packet.pts for packet in packets))}
    times = [*islice(accumulate(cycle(durations), initial=start), len(packets))]
    delay = max(
        time - times[ranks[packet.pts]] for time, packet in zip(times, packets, strict=True)
    )
    with av.open(out, "w", format=container_format, options=options or {}) as target:
        stream: Any = target.add_stream_from_template(source, opaque=True)
        stream.time_base = Fraction(1, base)
        for number, packet in enumerate(packets):
            packet.stream = stream
            packet.time_base = Fraction(1, base)
            packet.pts, packet.dts = times[ranks[packet.pts]], times[number] - delay
            packet.duration = durations[number % len(durations)]
            target.mux(packet)
    return out.getvalue() if path is None else path.read_bytes()


def make_audio(name: str, seconds: float = 1.0, *, rate: int = 16_000, channels: int = 2) -> bytes:
    """Return a file of one of the kinds in `SOUNDS`."""
    container_format, codec = SOUNDS[name]
    layout = ("mono", "stereo")[channels - 1]
    noise = np.random.default_rng(1).normal(0, 3000, (1, int(seconds * rate) * channels))
    frame = av.AudioFrame.from_ndarray(noise.astype(np.int16), format="s16", layout=layout)
    frame.sample_rate = rate
    file = BytesIO()
    with av.open(file, "w", format=container_format) as container:
        strict = {"strict": "experimental"} if codec == "vorbis" else {}
        stream: Any = container.add_stream(codec, rate=rate, layout=layout, options=strict)
        length = stream.codec_context.frame_size or 1152
        resampler = av.AudioResampler(stream.format, layout, rate, frame_size=length)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(piece))
        container.mux(stream.encode())
    return file.getvalue()
