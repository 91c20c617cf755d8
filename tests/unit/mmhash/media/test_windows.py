import numpy as np
import pytest

import mmhash
from mmhash.media.windows import WindowHasher

NOISE = np.random.default_rng(0).normal(size=(5000, 2)).astype(np.float32)


@pytest.mark.parametrize("piece", [1, 7, 1000, 4999, 5000])
def test_the_pieces_do_not_count(piece: int) -> None:
    hasher = WindowHasher(1500, "xxh3")
    for start in range(0, len(NOISE), piece):
        hasher.append(NOISE[start : start + piece])
    windows = [NOISE[at : at + 1500] for at in range(0, 5000, 1500)]
    assert hasher.contents() == [
        (mmhash.digest(window, algorithm="xxh3"), window.shape) for window in windows
    ]
    assert len(hasher.closed) == 3


def test_without_windows_all_samples_are_one() -> None:
    hasher = WindowHasher(0, "blake3")
    hasher.append(NOISE[:10])
    hasher.append(NOISE[10:])
    assert hasher.contents() == [(mmhash.digest(NOISE), (5000, 2))]
