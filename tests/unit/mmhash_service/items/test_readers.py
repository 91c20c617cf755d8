"""A digest does not depend on how its content arrives."""

import random
from typing import Any

import pytest

import mmhash
from mmhash.digest import ALGORITHMS
from mmhash_service.items.readers import AlignedHasher

CONTENT = (bytes(range(251)) * 13_000)[: (3 << 20) + 12_345]


def cut(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    pieces, at = [], 0
    while at < len(CONTENT):
        step = rng.choice([1, 1000, 65_535, 65_536, 65_537, 256_000, 1_048_577])
        pieces.append(CONTENT[at : at + step])
        at += step
    return pieces


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(5))
def test_the_digest_does_not_depend_on_the_pieces(seed: int, algorithm: Any) -> None:
    stream = AlignedHasher(algorithm)
    for piece in cut(seed):
        stream.update(piece)
    assert stream.length == len(CONTENT)
    assert stream.digest() == mmhash.digest(CONTENT, algorithm=algorithm)
