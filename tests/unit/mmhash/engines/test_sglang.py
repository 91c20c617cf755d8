from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmhash import InputError, InputTypeError, InputValueError
from mmhash.engines import sglang

NOISE = np.random.default_rng(3).integers(0, 256, 1 << 20, dtype=np.uint8)
# features


@pytest.mark.parametrize(
    "x", [None, "abc", [], [NOISE], [[torch.zeros(1)]], [torch.zeros(1), NOISE], ()]
)
def test_a_feature_that_the_engine_cannot_hash_is_refused(x: Any) -> None:
    with pytest.raises(InputTypeError):
        sglang.hash_feature(x)


@pytest.mark.gpu
def test_a_gpu_tensor_has_the_kernels_value() -> None:
    values = torch.from_numpy(NOISE).cuda()
    assert sglang.hash_feature(values) == sglang.gpu_hash(NOISE)
    assert sglang.hash_feature([values[:7], values[7:]]) == sglang.gpu_hash(NOISE)
    with pytest.raises(InputValueError, match="GPU"):
        sglang.hash_feature(values, version="0.5.0")


# pads


def test_the_padding_of_each_span_starts_with_its_first_value() -> None:
    ids = list(range(20))
    padded = sglang.pad_input_ids(ids, [(12, 18, 5), (1, 4, 5), (4, 4, 6)])
    pads = sglang.pad_values(5)
    assert padded == [0, *pads[:3], *range(4, 12), *pads, *pads[:2], 18, 19]
    assert ids == list(range(20))


@pytest.mark.parametrize(
    ("spans", "words"),
    [([(0, 5, 1), (4, 6, 2)], "overlap"), ([(5, 4, 1)], "5 to 4"), ([(-1, 4, 1)], "-1 to 4"),
     ([(0, 21, 1)], "0 to 21.*20 ids"), ([(0, 5, -1)], "negative"), ([(0, 5, bytes(31))], "32 bytes")],
)  # fmt: skip
def test_bad_spans(spans: Any, words: str) -> None:
    with pytest.raises(InputValueError, match=words):
        sglang.pad_input_ids(range(20), spans)


@pytest.mark.parametrize("bad", [-1, bytes(31), bytes(33), 1.5, "ab", None, True])
def test_bad_hashes(bad: Any) -> None:
    with pytest.raises(InputError):
        sglang.pad_values(bad)


def test_arguments_of_a_later_release_are_refused() -> None:
    with pytest.raises(InputValueError, match=r"0\.5\.13"):
        sglang.parse_mm_hash("ab", version="0.5.12")
    with pytest.raises(InputValueError, match=r"0\.5\.23"):
        sglang.pad_values(bytes(32), version="0.5.22")
    with pytest.raises(InputValueError, match=r"0\.5\.20"):
        sglang.page_keys([1], 1, cache_salt="a", version="0.5.19")
    with pytest.raises(InputValueError, match=r"0\.5\.20"):
        sglang.namespaced_hash(1, None, version="0.5.19")
    with pytest.raises(InputValueError, match="length"):
        sglang.padding(1, -1)


# pages


def test_a_chain_continues_from_a_prior_key() -> None:
    tokens = list(range(100, 140))
    keys = sglang.page_keys(tokens, 16)
    assert (
        sglang.page_keys(np.array(tokens), 16)
        == sglang.page_keys(np.array(tokens, np.uint32), 16)
        == keys
    )
    assert sglang.page_keys(tokens[32:], 16, prior=keys[1]) == keys[2:]
    # Only a chain without a prior key begins with the namespace.
    assert sglang.page_keys(tokens, 16, prior="", cache_salt="salt") == keys


@given(
    tokens=st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 200_000), max_size=60),
    size=st.integers(1, 20),
)
def test_keys_of_a_prefix_are_a_prefix_of_the_keys(tokens: list[int], size: int) -> None:
    keys = sglang.page_keys(tokens, size)
    whole = len(tokens) // 2 // size
    assert sglang.page_keys(tokens[: whole * size], size) == keys[:whole]


@pytest.mark.parametrize(
    ("tokens", "options", "words"),
    [([1], {"page_size": 0}, "page_size"), ([1], {"page_size": -1}, "page_size"), ([-1], {}, "0 to"),
     ([2**63], {}, "at most"), ([2**64], {}, "at most"), (np.array([2**63], np.uint64), {}, "0 to"),
     ([1], {"prior": "ab"}, "prior"), ([1], {"prior": "g" * 64}, "prior"),
     ([2**32], {"version": "0.5.22"}, "32 bits")],
)  # fmt: skip
def test_bad_pages(tokens: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputValueError, match=words):
        sglang.page_keys(tokens, **{"page_size": 4, **options})


@pytest.mark.parametrize(
    "tokens", [["a"], [1.5], [None], [(1, 2), (3,)], np.zeros((1, 1, 1), int), np.zeros(3)]
)
def test_token_ids_of_other_types_are_refused(tokens: Any) -> None:
    with pytest.raises(InputTypeError, match="whole numbers"):
        sglang.page_keys(tokens, 4)


@pytest.mark.parametrize("text", ["", "ab", "g" * 64, None, 5])
def test_event_id_takes_a_page_key(text: Any) -> None:
    with pytest.raises(InputValueError, match="page_key"):
        sglang.event_id(text)


# identity and bundles


def artifact_key(value: Any) -> str:
    return sglang.artifact_key(
        sglang.content_hash(b"media"), modality="image",
        processor_fingerprint=sglang.content_hash(b"processor"), preprocess_kwargs={"a": value},
    )  # fmt: skip


class Pair(NamedTuple):
    first: int
    second: int


class Numbers(list[int]):
    pass


@dataclass
class Options(dict[str, int]):
    size: int = 0


# A bool of 2, 0 and 1, in one row and in two.
FLAGS = torch.tensor([2, 0, 1], dtype=torch.uint8).view(torch.bool)
FLAG_ROWS = FLAGS.expand(2, 3)


# Printed by 0.5.20 and 0.5.23.
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(1.5), "9ea50d6e679865e7f406cdf5efdf3f68af824d9d55517c50a1d4a2ddc7e715f0"),
        (np.str_("q"), "34e5bbb64165334724f4f38045652dc375cb288949c7328890c652a933e698d0"),
        (np.bytes_(b"w"), "3ab4b053c874dd7a4e6e76172ffdb2bf4493eba71ab3bfad0a29f9175bcede44"),
        (np.int64(3), "7825fe4ea674d3800e3110c356ced4564eb0b418ba86b7167025e06b189b293f"),
        (torch.Size([1, 2]), "de1c176b711d072d5f76684d4a3c33190c6a35648611ee5d060ab9ae4eb8fd2b"),
        (Pair(1, 2), "de1c176b711d072d5f76684d4a3c33190c6a35648611ee5d060ab9ae4eb8fd2b"),
        (Numbers([1]), "515e0de978fd8731a3a4e811b0259a7a74dc1c8a34fbceb3b059d78b5b126dc5"),
        (torch.float32, "a267ddd9a50e718663cd4840792a10e8dc6917f9adfed54f2cf7a23fb662c2e4"),
        (FLAGS, "25d58867f33b46b47791345def0252d8f3cd94b45893339e379e423385c0386d"),
        (FLAG_ROWS, "d4908a1451ced9e55796059e1edf66ad4a77d652dfb32cb52bfb254bd0e62c7b"),
    ],
    ids=repr,
)
def test_artifact_keys_by_the_kind_that_the_engine_sees_first(value: Any, expected: str) -> None:
    assert artifact_key(value) == f"sha256:{expected}"


def test_an_artifact_s_dataclass_is_one_whatever_else_it_is() -> None:
    assert artifact_key(Options(3)) != artifact_key(Options(4))


@pytest.mark.parametrize(
    "value",
    [torch.tensor(1.5), PureWindowsPath("a"), np.longdouble(1), np.clongdouble(1),
     torch.ones(2, dtype=torch.complex64).conj(), torch.ones(2, dtype=torch.complex64).conj().imag],
    ids=repr,
)  # fmt: skip
def test_values_that_the_engine_has_no_artifact_key_of(value: Any) -> None:
    """Or another one in each process: the padding of a long double is whatever was there."""
    with pytest.raises(InputTypeError):
        artifact_key(value)


# The engine copies what is not contiguous, and all media; torch writes 1 for every bool but 0 then.
@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (FLAGS, 0x9463926D4640A53A),
        (FLAG_ROWS, 0x5A2AEC1266DF5B7B),
        ([FLAGS, FLAG_ROWS], 0x45A2D061ADAFFAA5),
    ],
)
def test_features_of_bools_that_are_neither_0_nor_1(feature: Any, expected: int) -> None:
    assert sglang.hash_feature(feature) == expected


def test_content_hash_of_bools_that_are_neither_0_nor_1() -> None:
    assert sglang.content_hash(FLAGS) == (
        "sha256:4550dde8082ebf628303b369d1db7fd94307482a165bbcdf23db9ec1fa08a792"
    )
    assert sglang.content_hash(FLAG_ROWS) == (
        "sha256:f4a10653816047d90d827861296fd1e7f19d03f9030ba3c443de40fe88e87bc9"
    )


@pytest.mark.parametrize("call", [sglang.hash_feature, sglang.content_hash])
def test_lazy_conjugates_have_no_hash_in_the_engine(call: Any) -> None:
    for lazy in (
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.zeros(0).to(torch.complex64).conj(),
    ):
        for value in (lazy, lazy.imag):
            with pytest.raises(InputTypeError, match="conjugated or negated"):
                call(value)


def test_artifact_keys_tell_types_apart() -> None:
    values = [1, 1.0, True, "1", b"1", None, [1], (1,), {1}, frozenset({1}), {"1": 1}, {1: 1},
              np.float32(1), np.ones(1), torch.ones(1)]  # fmt: skip
    assert len(set(map(artifact_key, values))) == len(values)
    assert artifact_key({"x": 1, "y": 2}) == artifact_key({"y": 2, "x": 1})
    with pytest.raises(InputTypeError, match="object"):
        artifact_key(object())


def test_ids_in_events_have_namespaces_since_0_5_22() -> None:
    assert sglang.event_seed("e", None, version="0.5.22") is not None
    assert sglang.event_seed(None, None, version="0.5.21") is None
    for names in (("e", None), (None, "s")):
        with pytest.raises(InputValueError, match=r"0\.5\.21 has no .* it came with 0\.5\.22"):
            sglang.event_seed(*names, version="0.5.21")


@pytest.mark.parametrize(
    ("modality", "grid", "first", "before"),
    [
        ("IMAGE", "image_grid_thw", "0.5.7", "0.5.6.post2"),
        ("IMAGE", "image_grid_hws", "0.5.15", "0.5.14"),
        ("IMAGE", "grid_thws", "0.5.23", "0.5.22"),
        ("VIDEO", "video_grid_thw", "0.5.7", "0.5.6.post2"),
        ("IMAGE", None, "0.5.10", "0.5.9"),
        ("AUDIO", None, "0.5.10", "0.5.9"),
    ],
)
def test_a_release_splits_by_the_grids_that_it_knows(
    modality: str, grid: str | None, first: str, before: str
) -> None:
    data = {} if grid is None else {grid: [[1, 4, 10], [1, 6, 10]]}
    rows = 2 if grid is None else 100
    item = sglang.BundleItem(
        modality, [(0, 9), (12, 26)], NOISE[:2400].reshape(rows, -1), None, data, 7
    )
    assert len(sglang.split_bundle(item, version=first)) == 2
    assert sglang.split_bundle(item, version=before) == [item]


@pytest.mark.parametrize(
    "counts", [[1, 2], np.array([[1], [2]]), torch.tensor([1, 2]), list(torch.tensor([1, 2]))]
)
def test_a_release_splits_the_patches_that_it_knows(counts: Any) -> None:
    data = {"num_patches": counts, "patch_pixel_values": NOISE[:3]}
    item = sglang.BundleItem("IMAGE", [(0, 9), (12, 26)], NOISE[:2], None, data)

    def patches(version: str) -> list[int]:
        parts = sglang.split_bundle(item, version=version)
        return [len(part.model_specific_data["patch_pixel_values"]) for part in parts]

    assert patches("0.5.14") == [1, 2]
    assert patches("0.5.13") == [3, 3]


def test_a_flat_grid_is_ignored_since_0_5_15() -> None:
    data = {"image_grid_thw": np.array([1, 1])}
    item = sglang.BundleItem("IMAGE", [(0, 9), (12, 26)], NOISE[:2], None, data)
    assert len(sglang.split_bundle(item, version="0.5.15")) == 2
    with pytest.raises(
        InputValueError, match="a grid must have a row of whole numbers for each item"
    ):
        sglang.split_bundle(item, version="0.5.14")


def test_a_bad_grid_is_refused() -> None:
    item = sglang.BundleItem(
        "VIDEO", [(0, 1), (2, 3)], torch.zeros(4, 2), None, {"video_grid_thw": ["ab"]}
    )
    with pytest.raises(InputValueError, match="grid"):
        sglang.split_bundle(item)
