"""The length of WAV files, as Python's own module writes them."""

import io
import wave

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.headers.wav import read_samples


def wav(samples: int, *, channels: int = 1, width: int = 2, rate: int = 16_000) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((channels, width, rate, samples, "NONE", ""))
        file.writeframes(bytes(samples * channels * width))
    return buffer.getvalue()


@pytest.mark.parametrize(("channels", "width"), [(1, 1), (1, 2), (2, 2), (2, 4)])
def test_each_channel_has_the_samples(channels: int, width: int) -> None:
    assert read_samples(wav(12_345, channels=channels, width=width)) == 12_345


def test_other_chunks_are_skipped() -> None:
    file = wav(7)
    listed = file[:36] + b"LIST\3\0\0\0abc\0" + file[36:]
    assert read_samples(listed) == 7


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a WAV"),
        (b"\xff\xfb\x90\x00", "not a WAV"),
        (wav(9)[:-1], "truncated"),
        (wav(9)[:30], "truncated"),
        (wav(9, rate=44_100), "at 16000 Hz, not 44100"),
        (wav(9)[:20] + b"\x02\0" + wav(9)[22:], "uncompressed"),
        (wav(9)[:36] + 1001 * b"LIST\0\0\0\0" + wav(9)[36:], "more than 1000 chunks"),
    ],
)
def test_other_files_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InputValueError, match=reason):
        read_samples(data)
