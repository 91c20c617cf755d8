"""Reads the index and decodes the frames of a video or audio clip, in a decoder process."""

from io import BytesIO
from typing import Any

import msgspec
import numpy as np

from mmhash.cpu import hash_bytes
from mmhash.errors import InputError, LimitError
from mmhash.media.container import read_audio_index, read_video_index
from mmhash.media.frames import decode_audio, decode_video
from mmhash.media.recipe import AudioRecipe, VideoRecipe
from mmhash.media.windows import WindowHasher
from mmhash_service.decoder.messages import (
    MAX_PARTS,
    AudioIndexed,
    AudioSelection,
    MediaJob,
    Part,
    PartsHashed,
    Refused,
    VideoIndexed,
    VideoSelection,
)

try:
    import av
except ImportError:  # an extra
    av = None  # type: ignore[assignment]

MediaAnswer = VideoIndexed | AudioIndexed | PartsHashed | Refused


def read_media(body: bytes, job: MediaJob) -> MediaAnswer:
    """Do the job, or return its problem."""
    if av is None:
        return Refused("no-media-extra", "PyAV is not installed")
    try:
        if job.selection is None:
            return _read_index(body, job)
        return PartsHashed(_hash_parts(body, job, job.selection))
    except LimitError as error:
        return Refused("media-too-large", repr(error)[:200], str(error)[:200])
    except MemoryError as error:
        return Refused("costly-media", repr(error)[:200])
    except (InputError, av.FFmpegError, ValueError, OverflowError) as error:
        return Refused("damaged-media", repr(error)[:200])


def _read_index(body: bytes, job: MediaJob) -> VideoIndexed | AudioIndexed:
    if job.modality == "audio":
        return AudioIndexed(*read_audio_index(body))
    frames, rate, width, height = read_video_index(body)
    return VideoIndexed(frames, rate.numerator, rate.denominator, width, height)


def _hash_parts(
    body: bytes, job: MediaJob, selection: VideoSelection | AudioSelection
) -> list[Part]:
    if isinstance(selection, AudioSelection):
        recipe = AudioRecipe(*msgspec.structs.astuple(selection))
        hasher = WindowHasher(recipe.window, job.algorithm)
        for samples in decode_audio(body, recipe):
            hasher.append(samples)
            if len(hasher.closed) > MAX_PARTS:
                raise LimitError(f"the clip has more than {MAX_PARTS} windows")
        return [Part(digest.bytes, shape) for digest, shape in hasher.contents()]
    parts = []
    pixels = 0
    for picture in decode_video(body, VideoRecipe(selection.indices, selection.size)):
        pixels += picture.shape[0] * picture.shape[1]
        if pixels > job.max_pixels:
            raise LimitError(f"the frames have more than {job.max_pixels} pixels")
        content = hash_bytes(picture.reshape(-1).data, job.algorithm)
        parts.append(Part(content.bytes, picture.shape))
    return parts


def load_codecs() -> None:
    """Make PyAV load all it needs, with a video and an audio clip that it writes itself."""
    if av is None:
        return
    av.logging.set_level(None)  # its output may quote the media
    video, audio = BytesIO(), BytesIO()
    _write(video, "matroska", "mjpeg", av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8)))
    sound: Any = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), layout="mono")
    sound.sample_rate = 8000
    _write(audio, "wav", "pcm_s16le", sound)
    job = MediaJob("blake3", "video", 0, 1 << 20, 1.0, 1.0)
    for file, modality, selection in (
        (video, "video", VideoSelection([0], (8, 8))),
        (audio, "audio", AudioSelection(0, 100, 16000, 2, 50)),
    ):
        body = file.getvalue()
        for chosen in (None, selection):
            for content in (body, body[:-8], b"damaged"):
                changed = msgspec.structs.replace(job, modality=modality, selection=chosen)
                read_media(content, changed)


def _write(file: BytesIO, container_format: str, codec: str, frame: Any) -> None:
    with av.open(file, "w", format=container_format) as container:
        stream: Any
        if isinstance(frame, av.VideoFrame):
            stream = container.add_stream(codec, rate=1)
            stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, "yuvj420p"
        else:
            stream = container.add_stream(codec, rate=8000, layout="mono")
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
