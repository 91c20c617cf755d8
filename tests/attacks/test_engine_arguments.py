"""Arguments of the engines' functions of a wrong type or value: each is a named error, never a key.

That caller is trusted, but bytes as token ids, or an object by its address, would be a wrong key.
"""

import inspect
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash.engines import dynamo, lmcache, lmdeploy, registry, sglang, trtllm, vllm
from mmhash.errors import InputError

KEY = mmhash.key(b"content")
SECRET = bytes(range(32))
HEX_16, HEX_64 = "ab" * 8, "ab" * 32
IDS = list(range(32))
SHA = f"sha256:{HEX_64}"

# By the function, a call that works; each argument is then replaced.
VSPAN, DSPAN = vllm.Span("id", 0, 4), dynamo.RoutingSpan(HEX_16, 0, 4)
VIDEO = trtllm.Video([np.zeros((2, 2, 3), np.uint8)], {"fps": 1.0})
CALLS: dict[Callable[..., Any], dict[str, Any]] = {
    sglang.artifact_key: {
        "content_digest": SHA,
        "modality": "image",
        "processor_fingerprint": "p",
        "preprocess_kwargs": {"a": 1},
    },
    sglang.combine_hashes: {"hashes": [1, 2]},
    sglang.content_hash: {"media": b"abc"},
    sglang.event_id: {"page_key": HEX_64},
    sglang.event_keys: {
        "tokens": IDS,
        "page_size": 4,
        "extra_key": None,
        "cache_salt": "s",
        "version": "0.5.23",
    },
    sglang.event_seed: {"extra_key": "e", "cache_salt": "s", "version": "0.5.23"},
    sglang.gpu_hash: {"data": b"abc"},
    sglang.file_hash: {"data": b"abc", "version": "0.5.23"},
    sglang.hash_feature: {"x": np.zeros(4), "version": "0.5.23", "server": "python"},
    sglang.mm_hash: {"key": KEY},
    sglang.namespace_seed: {"extra_key": "e", "cache_salt": "s", "version": "0.5.23"},
    sglang.namespaced_event_id: {"identifier": 1, "seed": SECRET},
    sglang.namespaced_hash: {"item_hash": 1, "namespace": SHA, "version": "0.5.23"},
    sglang.pad_input_ids: {"input_ids": IDS, "spans": [(0, 4, 5)], "version": "0.5.23"},
    sglang.pad_values: {"hash_or_identity": 5, "version": "0.5.23"},
    sglang.padding: {"hash_or_identity": 5, "length": 4, "version": "0.5.23"},
    sglang.page_keys: {
        "tokens": IDS,
        "page_size": 4,
        "prior": HEX_64,
        "extra_key": "e",
        "cache_salt": "s",
        "version": "0.5.23",
    },
    sglang.parse_content_hash: {"text": SHA},
    sglang.parse_mm_hash: {"text": HEX_16, "version": "0.5.23", "server": "rust"},
    sglang.pads_by_release: {"hash_or_identity": 5},
    sglang.split_bundle: {
        "item": sglang.BundleItem("IMAGE", [(0, 1), (2, 3)], np.zeros((2, 3))),
        "version": "0.5.23",
    },
    sglang.translate_pads: {"input_ids": IDS, "hashes": [5], "of": "0.5.9", "to": "0.5.23"},
    vllm.block_key: {
        "tokens": IDS,
        "parent": b"",
        "extra": (("mm", "id", 0),),
        "version": "0.33.0",
        "block_algorithm": "sha256",
        "seed": "0",
    },
    vllm.block_keys: {
        "tokens": IDS,
        "block_size": 4,
        "version": "0.33.0",
        "items": [VSPAN],
        "cache_salt": "s",
        "lora": vllm.Lora("a", "b"),
        "block_algorithm": "sha256",
        "seed": "0",
        "lookahead": 0,
        "hashed_after": [],
    },
    vllm.event_extra_keys: {"extra": (("mm", "id", 0),), "version": "0.33.0"},
    vllm.event_id: {"key": SECRET},
    vllm.extra_keys: {
        "tokens": IDS,
        "block_size": 4,
        "version": "0.33.0",
        "items": [VSPAN],
        "cache_salt": "s",
        "lora": vllm.Lora("a", "b"),
        "lookahead": 1,
        "hashed_after": [4],
    },
    vllm.identifiers: {
        "modality": "image",
        "items": [b"abc"],
        "model_id": "m",
        "uuids": [None],
        "processor_kwargs": {"a": 1},
        "media_io_kwargs": {"image": {"a": 1}},
        "per_video_options": True,
        "version": "0.33.0",
        "algorithm": "blake3",
    },
    vllm.mm_hash: {"version": "0.33.0", "algorithm": "blake3", "image": b"abc"},
    vllm.group_keys: {
        "block_keys": [bytes(32)] * 4,
        "block_size": 16,
        "group_size": 32,
        "version": "0.33.0",
    },
    vllm.none_hash: {"version": "0.33.0", "seed": "0", "block_algorithm": "sha256"},
    vllm.rehash_images: {
        "identifiers": [HEX_64],
        "model_type": "unlimited-ocr",
        "crop_mode": True,
        "version": "0.33.0",
        "algorithm": "blake3",
    },
    vllm.uuid: {"key": KEY},
    trtllm.int32s: {"digest": HEX_64},
    trtllm.mm_hash: {"item": b"abc", "uuid": "u", "version": "1.3.0rc22"},
    trtllm.mm_hashes: {"items": [b"abc"], "uuids": ["u"], "version": "1.3.0rc22"},
    trtllm.uuid: {"key": KEY},
    trtllm.Audio: {"samples": np.zeros(4), "sample_rate": 16000},
    dynamo.block_keys: {
        "tokens": IDS,
        "block_size": 4,
        "items": [[HEX_16]],
        "lora": "l",
        "cache_salt": "s",
        "eagle": False,
        "version": "1.6.0",
    },
    dynamo.bytes_hash: {"data": b"abc", "version": "1.6.0"},
    dynamo.image_uuid: {"image": np.zeros((2, 2, 3), np.uint8), "version": "1.6.0"},
    dynamo.mm_hash: {"decoded": np.zeros((2, 2, 3), np.uint8), "version": "1.6.0"},
    dynamo.pad_value: {"mm_hash": HEX_16, "version": "1.6.0"},
    dynamo.routing_tokens: {"tokens": IDS, "spans": [DSPAN], "version": "1.6.0"},
    dynamo.sequence_keys: {"block_keys": [HEX_16], "version": "1.6.0"},
    dynamo.url_hash: {"url": "http://a", "version": "1.6.0"},
    dynamo.uuid: {"mm_hash": HEX_64, "version": "1.6.0"},
    lmcache.token_values: {"identifier": HEX_64, "length": 4, "version": "0.5.6"},
    lmcache.substitute: {"tokens": IDS, "spans": [VSPAN], "version": "0.5.6"},
    lmdeploy.content_hash: {
        "data": np.zeros(4),
        "meta": None,
        "mrope_pos_ids": None,
        "version": "0.18.0",
    },
    registry.explain: {"key": KEY, "engine": "vllm"},
    registry.split_names: {"engines": "vllm"},
    registry.find: {"text": "vllm", "engine_fallback": "nearest-older"},
    registry.parse: {"text": "vllm", "engine_fallback": "nearest-older"},
    registry.parse_with_fields: {"text": "vllm", "engine_fallback": None},
    registry.pad_values: {"key_or_hash": KEY, "engine": "sglang@0.5.23"},
    registry.request_fields: {
        "key": KEY,
        "engine": "vllm",
        "engine_fallback": None,
        "exif_orientation": 6,
    },
}

# Each argument is replaced by each of these.
WRONG: dict[str, Callable[[], Any]] = {
    "an object": object,
    "an object in a list": lambda: [object()],
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__qualname__)
def test_an_argument_of_a_wrong_type_is_a_named_error(call: Callable[..., Any]) -> None:
    given = CALLS[call]
    run(call, given)
    for name in given:
        for make in WRONG.values():
            with pytest.raises(InputError) as caught:
                run(call, {**given, name: make()})
            assert isinstance(caught.value, TypeError | ValueError)
            assert 0 < len(str(caught.value)) < 500


def run(call: Callable[..., Any], given: dict[str, Any]) -> Any:
    result = call(**given)
    return list(result) if inspect.isgenerator(result) else result


@pytest.mark.parametrize(
    "tokens",
    [
        b"abcdefgh",
        memoryview(b"abcdefgh"),
        "12345678",
        [True, False],
        {1: 2},
        {1, 2},
        [(1, 2, 3)],
        [(1,)],
        np.zeros((4, 3), int),
        np.ones(4, bool),
        np.zeros(4),
        [1.0],
        [None],
        [-1],
        [2**64],
        torch.zeros(4),
        torch.empty(4, dtype=torch.int64, device="meta"),
        array("d", [1.0]),
    ],
    ids=lambda tokens: repr(tokens)[:40].partition(" at 0x")[0],
)
def test_what_are_no_ids_has_no_keys(tokens: Any) -> None:
    for call in (
        lambda: sglang.page_keys(tokens, 1),
        lambda: sglang.event_keys(tokens, 1),
        lambda: vllm.block_keys(tokens, 1),
        lambda: dynamo.block_keys(tokens, 1),
        lambda: dynamo.routing_tokens(tokens, []),
        lambda: lmcache.substitute(tokens, []),
    ):
        with pytest.raises(InputError, match="token"):
            call()


@pytest.mark.parametrize("page_size", [1.0, "1", True, float("nan"), -1, 0, [1], 2**200])
def test_what_is_no_size_of_a_page_is_refused(page_size: Any) -> None:
    with pytest.raises(InputError, match="page_size"):
        sglang.page_keys(IDS, page_size)
    for call in (vllm.block_keys, dynamo.block_keys):
        with pytest.raises(InputError, match="block_size"):
            call(IDS, page_size)


@pytest.mark.parametrize(
    "ids",
    [
        tuple(IDS),
        range(32),
        np.arange(32),
        array("q", IDS),
        torch.arange(32),
        [*map(np.int64, IDS)],
    ],
)
def test_other_kinds_of_ids_have_the_same_keys(ids: Any) -> None:
    assert sglang.page_keys(ids, 4) == sglang.page_keys(IDS, 4)
    assert vllm.block_keys(ids, 4) == vllm.block_keys(IDS, 4)
    assert dynamo.block_keys(ids, 4) == dynamo.block_keys(IDS, 4)


def test_values_that_hold_themselves_end() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for call in (
        lambda: vllm.mm_hash(image=endless),
        lambda: trtllm.mm_hash(endless),
        lambda: sglang.hash_feature([torch.zeros(1), endless]),
        lambda: sglang.artifact_key(
            SHA, modality="image", processor_fingerprint="p", preprocess_kwargs={"a": endless}
        ),
        lambda: vllm.block_key(IDS, extra=(endless,)),
    ):
        with pytest.raises(InputError, match="nested"):
            call()
