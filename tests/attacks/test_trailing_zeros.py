"""Zero bytes at the end that do not count: SGLang's GPU hash has 63 and 64 of them as one.

A digest is of all bytes and of their number, and a key has the shape besides.
"""

from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.engines import sglang
from tests.support.responses import items_of


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_no_two_numbers_of_zeros_are_one(algorithm: Any) -> None:
    lengths = [*range(70), 1023, 1024, 1025, 4095, 4096, 65535, 65536]
    assert len({mmhash.digest(bytes(length), algorithm=algorithm) for length in lengths}) == len(
        lengths
    )
    keys = {mmhash.key(np.zeros(length, "uint8"), algorithm=algorithm).hex() for length in lengths}
    assert len(keys) == len(lengths)


def test_where_the_peer_takes_them_for_one_we_do_not(server: Any) -> None:
    assert sglang.gpu_hash(bytes(63)) == sglang.gpu_hash(bytes(64))
    found = [items_of(server.hash(bytes(length)))[0] for length in (63, 64)]
    assert found[0]["digest"] != found[1]["digest"]
    assert found[0]["key"] != found[1]["key"]


def test_content_and_content_with_zeros_behind_are_two() -> None:
    assert mmhash.key(b"abc") != mmhash.key(b"abc\0")
    assert mmhash.key(np.array([1, 2], "int16")) != mmhash.key(np.array([1, 2, 0], "int16"))
