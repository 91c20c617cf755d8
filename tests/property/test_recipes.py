"""Random recipes over real files: two keys are equal exactly if the decoded frames are.

The frames that a recipe stands for are taken from the whole file, decoded once.
"""

import random
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import pytest

import mmhash
from mmhash.errors import InputValueError
from tests.support.clips import AUDIOS, VIDEOS, make_audio, make_video

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = [None, None, (64, 48), (32, 24), (48, 64)]
Case = tuple[str, bytes]
"""A key, and what the model gets."""


class Film:
    """A video, decoded whole."""

    def __init__(self, name: str) -> None:
        self.file = make_video(name)
        with av.open(BytesIO(self.file)) as container:
            self.pictures: list[Any] = list(container.decode(video=0))

    @cache  # noqa: B019
    def frame(self, index: int, size: tuple[int, int] | None) -> bytes:
        width, height = size or (64, 48)
        shown = self.pictures[index].to_ndarray(format="rgb24", width=width, height=height)
        return bytes(mmhash.key(shown).bytes)

    def draw(self, choose: random.Random) -> Case:
        count = len(self.pictures)
        request: dict[str, Any] = choose.choice(
            [
                {"fps": choose.choice([0.5, 1, 2, 2.4, 3, 4, 6, 8, 11.99, 12, 24])},
                {"fps": round(choose.uniform(0.3, 14), 2)},
                {"count": choose.randint(1, count + 4)},
                {"indices": sorted(choose.sample(range(count), choose.randint(1, count)))},
                {"indices": list(range(0, count, choose.randint(1, count)))},
                {},
            ]
        )
        if "indices" not in request and choose.random() < 0.5:
            request["max_frames"] = choose.randint(1, count + 4)
        clip = mmhash.video(self.file, **request, size=choose.choice(SIZES))
        shown = b"".join(self.frame(index, clip.recipe.size) for index in clip.recipe.indices)
        return clip.key.hex(), shown


class Sound:
    """An audio stream, decoded whole."""

    def __init__(self, name: str) -> None:
        self.file = make_audio(name)
        with av.open(BytesIO(self.file)) as container:
            pieces = [self.flat(piece) for piece in container.decode(audio=0)]
        self.samples = np.concatenate(pieces)
        assert len(self.samples) == 16_000

    @staticmethod
    def flat(piece: Any) -> Any:
        array = piece.to_ndarray()
        return array.T if piece.format.is_planar else array.reshape(-1, 2)

    def draw(self, choose: random.Random) -> Case:
        start = choose.choice([0, 0, 0.25, 0.5, 1 / 3, choose.uniform(0, 0.9)])
        request: dict[str, Any] = {
            "start": round(start, 6),
            "stop": choose.choice([None, 1, 1.0, 2, 0.95, 0.999, 1.00005, 0.99995]),
            "rate": choose.choice([None, 16_000, 8_000]),
            "channels": choose.choice([None, 2, 1]),
            "window": choose.choice([None, 0.25, 0.5, 1, 3]),
        }
        clip = mmhash.audio(self.file, **request)
        stop = (
            16_000 if request["stop"] is None else -(-round(request["stop"] * 10**6) * 16 // 1000)
        )
        part = self.samples[-(-round(request["start"] * 10**6) * 16 // 1000) : min(16_000, stop)]
        rate, channels = request["rate"] or 16_000, request["channels"] or 2
        # The windows that the model gets of these samples.
        window = int((request["window"] or 9) * rate)
        windows = -(-len(part) * rate // 16_000 // window), min(window, len(part) * rate // 16_000)
        return clip.key.hex(), part.tobytes() + repr((rate, channels, windows)).encode()


@pytest.mark.parametrize("number", [400, pytest.param(3000, marks=pytest.mark.slow)])
def test_keys_are_equal_exactly_if_the_frames_are(number: int) -> None:
    choose = random.Random(22)
    sources: list[Any] = [*map(Film, VIDEOS), *map(Sound, AUDIOS)]
    shown_of: dict[str, bytes] = {}
    key_of: dict[tuple[int, bytes], str] = {}
    for turn in range(number):
        which = turn % len(sources)
        draw: Callable[[random.Random], Case] = sources[which].draw
        key, shown = draw(choose)
        marked = bytes([which]) + shown
        assert shown_of.setdefault(key, marked) == marked
        assert key_of.setdefault((which, shown), key) == key
    # Both happened: recipes that share a key, and recipes that do not.
    assert number / 100 < len(shown_of) < number


@pytest.mark.parametrize("name", VIDEOS)
def test_all_frames_of_the_files_differ(name: str) -> None:
    film = Film(name)
    assert len({film.frame(index, None) for index in range(len(film.pictures))}) == 24


def test_a_recipe_without_samples_is_refused() -> None:
    with pytest.raises(InputValueError, match="no sample"):
        mmhash.audio(make_audio("pcm.wav"), start=1)
