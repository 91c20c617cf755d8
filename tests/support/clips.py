"""Small media files, written with PyAV: noise, so that no two frames or samples are equal."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
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
    """Return a file of a kind in `VIDEOS`. If a sound is given, it is the second track."""
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

    If root runs SVT-AV1, it gives the thread the highest real-time priority. All threads and
    processes that the thread starts inherit the priority, never share a core, and block each other.
    """
    if sys.platform != "linux":
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def remux(film: bytes, sound: bytes | None = None, container_format: str = "matroska") -> bytes:
    """Return a film in another container, and with a sound if one is given."""
    out = BytesIO()
    with av.open(out, "w", format=container_format) as target:
        opened: list[Any] = [av.open(BytesIO(each)) for each in (film, sound) if each]
        streams = [target.add_stream_from_template(source.streams[0]) for source in opened]
        pieces = [
            (packet.dts * packet.time_base, number, packet)
            for number, source in enumerate(opened)
            for packet in source.demux()
            if packet.dts is not None
        ]
        for _, number, packet in sorted(pieces, key=lambda piece: piece[:2]):
            packet.stream = streams[number]
            target.mux(packet)
    return out.getvalue()


def make_audio(name: str, seconds: float = 1.0, *, rate: int = 16_000, channels: int = 2) -> bytes:
    """Return a file of a kind in `AUDIOS`."""
    container_format, codec = AUDIOS[name]
    layout = ("mono", "stereo")[channels - 1]
    noise = np.random.default_rng(1).normal(0, 3000, (1, int(seconds * rate) * channels))
    frame = av.AudioFrame.from_ndarray(noise.astype(np.int16), format="s16", layout=layout)
    frame.sample_rate = rate
    file = BytesIO()
    with av.open(file, "w", format=container_format) as container:
        stream: Any = container.add_stream(codec, rate=rate, layout=layout)
        length = stream.codec_context.frame_size or 1152
        resampler = av.AudioResampler(stream.format, layout, rate, frame_size=length)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(piece))
        container.mux(stream.encode())
    return file.getvalue()
