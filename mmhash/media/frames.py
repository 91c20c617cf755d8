"""Decoded frames and samples of a source under a recipe, one after another.

FFmpeg decodes with one thread. More threads would give the same frames, but a confined process may
not start any.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from mmhash.errors import InputValueError
from mmhash.media.container import Buffer, first_stream, open_container
from mmhash.media.recipe import AudioRecipe, VideoRecipe

Array = np.ndarray[Any, Any]


def decode_video(source: Buffer, recipe: VideoRecipe) -> Iterator[Array]:
    """Yield the selected frames in RGB, as uint8 arrays of height, width and 3."""
    wanted = iter(recipe.indices)
    following = next(wanted, None)
    with open_container(source, decoders=True) as container:
        stream = first_stream(container, "video")
        stream.codec_context.thread_type = "NONE"
        stream.codec_context.thread_count = 1
        for number, picture in enumerate(container.decode(stream)):
            if number == following:
                yield _rgb(picture, recipe.size)
                if (following := next(wanted, None)) is None:
                    return
    raise InputValueError(f"frame {following} of the video cannot be decoded")


def decode_audio(source: Buffer, recipe: AudioRecipe) -> Iterator[Array]:
    """Yield the samples of the range in pieces, as float32 arrays of samples by channels."""
    import av  # noqa: PLC0415  (an extra)

    with open_container(source, decoders=True) as container:
        stream = first_stream(container, "audio")
        stream.codec_context.thread_type = "NONE"
        stream.codec_context.thread_count = 1
        layout = _layout(recipe.channels, stream)
        resampler = av.AudioResampler(format="flt", layout=layout, rate=recipe.rate)
        end = 0
        for piece in container.decode(stream):
            start, end = end, end + piece.samples
            if end > recipe.start and start < recipe.stop:
                part = _cut(piece, recipe.start - start, recipe.stop - start)
                yield from _arrays(resampler.resample(part), recipe.channels)
            if end >= recipe.stop:
                break
        if end < recipe.stop:
            raise InputValueError(f"the audio ends at sample {end} of {recipe.stop}")
        yield from _arrays(resampler.resample(None), recipe.channels)


def _rgb(picture: Any, size: tuple[int, int] | None) -> Array:
    width, height = size or (picture.width, picture.height)
    # For some sizes FFmpeg pads the rows.
    return np.ascontiguousarray(picture.to_ndarray(format="rgb24", width=width, height=height))


def _cut(piece: Any, start: int, stop: int) -> Any:
    """Return a piece's samples from `start` to `stop`, without times."""
    import av  # noqa: PLC0415  (an extra)

    array = piece.to_ndarray()
    step = 1 if piece.format.is_planar else piece.layout.nb_channels
    cut = np.ascontiguousarray(array[:, max(0, start) * step : max(0, stop) * step])
    frame = av.AudioFrame.from_ndarray(cut, format=piece.format.name, layout=piece.layout.name)
    frame.sample_rate = piece.sample_rate
    frame.time_base = Fraction(1, piece.sample_rate)
    return frame


def _arrays(pieces: list[Any], channels: int) -> Iterator[Array]:
    for piece in pieces:
        if piece.samples:
            yield piece.to_ndarray().reshape(-1, channels)


def _layout(channels: int, stream: Any) -> str:
    """Return FFmpeg's name for a channel layout."""
    if channels == stream.channels:
        return str(stream.layout.name)
    if channels > 2:
        raise InputValueError("audio can be mixed only to 1 or 2 channels: omit channels")
    return ("mono", "stereo")[channels - 1]
