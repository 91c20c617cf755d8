import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import mmhash
from mmhash import InputTypeError, InputValueError
from mmhash.engines.trtllm import Audio, Video, int32s, mm_hash, mm_hashes

RGB = Image.frombytes("RGB", (2, 2), bytes(range(12)))
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_container_is_not_content() -> None:
    assert mm_hash(ROWS) == mm_hash(torch.from_numpy(ROWS))
    assert mm_hash([1, "a"]) == mm_hash((1, "a"))
    assert mm_hash(np.float32(0.5)) == mm_hash(0.5)
    assert mm_hash(np.int64(3)) == mm_hash(3)
    assert mm_hash(np.bool_(True)) == mm_hash(True)
    assert mm_hash(np.str_("a")) == mm_hash("a")


def test_different_values_have_different_hashes() -> None:
    items = [
        ROWS, ROWS.T, ROWS.reshape(-1), ROWS.view(np.int32), ROWS.astype(">f4"), RGB,
        RGB.convert("L"), RGB.convert("RGBA"), RGB.resize((4, 1)), True, 1, 1.0, "1", b"1", [1],
        [[1]], {"a": 1}, [], {}, -0.0, 0.0, 0, 255, -1, ROWS[:0], ROWS[:, :0],
    ]  # fmt: skip
    assert len({mm_hash(item) for item in items}) == len(items)


def test_mm_hashes_hashes_each_item() -> None:
    assert mm_hashes([RGB, ROWS], uuids=["a", None]) == [mm_hash(RGB, uuid="a"), mm_hash(ROWS)]
    assert mm_hashes([RGB]) == [mm_hash(RGB)]
    assert mm_hashes([], uuids=[]) == []


@pytest.mark.parametrize(
    ("items", "uuids", "error", "words"),
    [
        (RGB, None, InputTypeError, "list of items, not one Image"),
        ([RGB], [], InputValueError, "uuids has 0 entries, but there are 1 items"),
        ([RGB], [7], InputTypeError, "item 0: uuid must be a str or None, not int"),
        ([RGB, None], None, InputTypeError, "item 1: .*NoneType"),
    ],
)
def test_bad_lists(items: Any, uuids: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        mm_hashes(items, uuids=uuids)


@pytest.mark.parametrize(
    ("item", "error", "words"),
    [
        (None, InputTypeError, "NoneType"),
        (bytearray(b"a"), InputTypeError, "bytearray"),
        (np.complex64(1), InputTypeError, "complex"),
        (np.array([None]), InputTypeError, "object array"),
        ({1: 0, "a": 0}, InputTypeError, "sorted together"),
        (torch.zeros(2, dtype=torch.bfloat16), InputTypeError, "bfloat16"),
        (torch.zeros(2, dtype=torch.complex64).conj(), InputTypeError, "complex64"),
        (torch.zeros(2).to_sparse(), InputTypeError, "numpy can hold"),
        (2**2039, InputValueError, "255 bytes"),
        ("\ud800", InputValueError, "surrogates"),
        (Image.new("La", (1, 1)), InputValueError, "La image"),
    ],
)
def test_a_value_that_the_engine_refuses_is_refused(
    item: object, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        mm_hash(item)


def test_a_list_that_holds_itself() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InputValueError, match="nested too deep"):
        mm_hash(endless)


def test_a_truncated_image() -> None:
    file = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(file, "PNG")
    image = Image.open(io.BytesIO(file.getvalue()[:300]))
    with pytest.raises(InputValueError, match="cannot be converted"):
        mm_hash(image)


SAMPLES = np.zeros(4, np.float32)


def test_a_sample_rate_becomes_an_int() -> None:
    for rate in (np.int64(16000), 16000.5):
        assert mm_hash(Audio(SAMPLES, rate)) == mm_hash(Audio(SAMPLES, 16000))
    assert mm_hash(Audio(torch.from_numpy(SAMPLES), 16000)) == mm_hash(Audio(SAMPLES, 16000))
    assert mm_hash(Audio(SAMPLES, 16000)) != mm_hash(Audio(SAMPLES, 8000))
    assert mm_hash(Audio(SAMPLES, 16000)) != mm_hash((SAMPLES, 16000))


def test_samples_must_be_an_array_or_tensor() -> None:
    with pytest.raises(InputTypeError, match="samples"):
        Audio([0.0], 1)


def test_only_the_sampling_of_a_video_counts() -> None:
    plain = mm_hash(Video([RGB], {"fps": 2.0}))
    assert mm_hash(Video((RGB,), {"codec": "h264", "fps": 2.0})) == plain
    assert mm_hash(Video([RGB], {"fps": 3.0})) != plain
    assert mm_hash(Video([RGB], {})) != plain
    assert mm_hash(Video([RGB, RGB], {"fps": 2.0})) != plain
    assert mm_hash(Video([RGB], {"fps": 2.0}, Audio(SAMPLES, 1))) != plain
    assert mm_hash([RGB]) != mm_hash(Video([RGB], {}))


def test_the_hash_of_its_file_stands_for_a_videos_frames() -> None:
    one, other = Video([RGB], {}, None, "ab"), Video([ROWS], {}, None, "ab")
    assert mm_hash(one) == mm_hash(other)
    assert mm_hash(one) != mm_hash(Video([RGB], {}, None, "ac"))
    assert mm_hash(one) != mm_hash(Video([RGB], {}))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([], {}), InputValueError, "at least one frame"),
        (
            (np.zeros((2, 2, 2, 3)), {}),
            InputTypeError,
            "frames must be a list of frames, not ndarray",
        ),
    ],
)
def test_bad_video(arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Video(*arguments)


@given(st.binary(min_size=32, max_size=32))
def test_int32s_are_the_digest(digest: bytes) -> None:
    numbers = int32s(digest)
    assert b"".join(number.to_bytes(4, "big", signed=True) for number in numbers) == digest
    assert int32s(digest.hex()) == int32s(digest.hex().upper()) == numbers
    assert int32s(mmhash.Digest("blake3", digest)) == numbers


@pytest.mark.parametrize(
    ("digest", "error", "words"),
    [
        ("ab" * 31, InputValueError, "64 hex digits"),
        ("ab" * 32 + "\n", InputValueError, "64 hex digits"),
        (bytes(31), InputValueError, "32 bytes, not 31"),
        (mmhash.digest(b"", algorithm="xxh3"), InputValueError, "32 bytes, not 16"),
        (32, InputTypeError, "not int"),
    ],
)
def test_bad_digests(digest: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        int32s(digest)
