"""Entries of the memo: round trips, names, and damage."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import features

from mmhash import Digest
from mmhash.digest import ALGORITHMS, DIGEST_SIZE, Algorithm
from mmhash_service.memo import entries
from mmhash_service.memo.entries import (
    Entry,
    Fetched,
    Pixels,
    decoders,
    pixels_entry,
    url_entry,
)

ENCODED = Digest("blake3", bytes(range(32)))
URL = "https://images.example.org/cat.jpg"
NATURAL = st.integers(0, 2**64 - 1)
DIGESTS = st.sampled_from(ALGORITHMS).flatmap(
    lambda name: st.builds(
        Digest, st.just(name), st.binary(min_size=DIGEST_SIZE[name], max_size=DIGEST_SIZE[name])
    )
)
ETAGS = st.text(min_size=1, max_size=100)


@given(st.builds(Pixels, NATURAL, NATURAL, DIGESTS, st.binary(max_size=2000), st.integers(1, 8)))
def test_pixels_survive_a_round_trip(pixels: Pixels) -> None:
    place = pixels_entry(b"", pixels.digest.algorithm, 1, ENCODED)
    packed = place.open(place.seal(place.pack(pixels)))
    assert packed is not None
    assert place.unpack(packed) == pixels


@given(st.builds(Fetched, ETAGS, NATURAL, DIGESTS))
def test_a_fetch_survives_a_round_trip(fetched: Fetched) -> None:
    place = url_entry(b"", fetched.digest.algorithm, URL)
    packed = place.open(place.seal(place.pack(fetched)))
    assert packed is not None
    assert place.unpack(packed) == fetched


def test_every_input_changes_the_name_of_an_entry() -> None:
    other = Digest("blake3", bytes(32))
    algorithms: list[Algorithm] = ["blake3", "xxh3"]
    names = [
        *[
            pixels_entry(space, algorithm, limit, encoded).name
            for space in (b"", bytes(32), b"\1" * 32)
            for algorithm in algorithms
            for limit in (1, 2)
            for encoded in (ENCODED, other)
        ],
        *[
            url_entry(space, algorithm, url).name
            for space in (b"", bytes(32))
            for algorithm in algorithms
            for url in (URL, URL + "?", "")
        ],
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("decoder", ["jpg", "libjpeg_turbo", "zlib", "webp", "libtiff", "Pillow"])
def test_another_version_of_a_decoder_finds_no_old_entry(
    decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pixels_entry(b"", "blake3", 1, ENCODED).name
    true_version = features.version
    with monkeypatch.context() as changed:
        changed.setattr(entries, "pillow_version", "99" if decoder == "Pillow" else "13")
        changed.setattr(
            features, "version", lambda name: "99" if name == decoder else true_version(name)
        )
        decoders.cache_clear()
        assert b" 99" in decoders()
        after = pixels_entry(b"", "blake3", 1, ENCODED).name
    decoders.cache_clear()
    assert after != before
    assert pixels_entry(b"", "blake3", 1, ENCODED).name == before


def test_a_stored_entry_reveals_nothing_of_its_content() -> None:
    digest = Digest("blake3", b"pixels' digest, just as they are")
    pixels = pixels_entry(b"", "blake3", 1, ENCODED)
    url = url_entry(b"", "blake3", URL)
    kept = b"".join(
        (
            pixels.name,
            pixels.seal(pixels.pack(Pixels(1, 2, digest, b"RGB of some size", 1))),
            url.name,
            url.seal(url.pack(Fetched('"an etag"', 3, digest))),
        )
    )
    for plain in (digest.bytes, ENCODED.bytes, URL.encode(), b"example", b"etag", b"RGB"):
        assert plain not in kept


def test_a_damaged_entry_is_a_miss() -> None:
    place = Entry("one", bytes, b"here")
    sealed = place.seal(b"value")
    for bit in range(8 * len(sealed)):
        damaged = bytearray(sealed)
        damaged[bit // 8] ^= 1 << bit % 8
        assert place.open(bytes(damaged)) is None
    for other in (
        b"",
        sealed[:-1],
        sealed[:16],
        sealed + b"\0",
        Entry("one", bytes, b"there").seal(b"value"),
    ):
        assert place.open(other) is None
    assert place.open(sealed) == b"value"


@pytest.mark.parametrize("kind", [Pixels, Fetched])
@pytest.mark.parametrize("value", [b"", b"\x00" * 15, b"\xff" * 40, b"\x94\xc0\xc0\x00\xa1x"])
def test_bytes_that_are_no_entry_are_a_miss(kind: type[Any], value: bytes) -> None:
    assert Entry("one", kind).unpack(value) is None
