"""Arguments of any kind and size: raw memory hashed as ids, raw errors, or a call without an end.

Each public argument is checked once, at the edge: a value is taken, or an error of mmhash names it.
"""

import asyncio
import inspect
import itertools
import math
import signal
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash import tags
from mmhash.engines import dynamo, registry, sglang, trtllm, vllm
from mmhash.errors import InputError, MMHashError
from mmhash.transport import SharedPool
from mmhash.transport.cuda_pool import budget

KEY = mmhash.key(b"content")
SECRET = bytes(range(32))
HEX_16, HEX_64 = "ab" * 8, "ab" * 32
IDS = list(range(32))
SHA = f"sha256:{HEX_64}"


class Number(IntEnum):
    """An int with a name."""

    ONE = 1


def recursive_list() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


def recursive_dict() -> Any:
    found: dict[str, Any] = {}
    found["a"] = found
    return found


def deep(make: Callable[[Any], Any], depth: int = 5000) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = make(found)
    return found


def shared() -> Any:
    """2**60 numbers, in 60 lists."""
    found: Any = 1
    for _ in range(60):
        found = [found, found]
    return found


def released() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


HOSTILE: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "bytes": lambda: b"abcdefgh",
    "no bytes": lambda: b"",
    "bytearray": lambda: bytearray(b"abcdefgh"),
    "True": lambda: True,
    "NaN": lambda: math.nan,
    "infinity": lambda: math.inf,
    "a float": lambda: 1.0,
    "-1": lambda: -1,
    "0": lambda: 0,
    "2**31": lambda: 2**31,
    "2**64": lambda: 2**64,
    "2**200": lambda: 2**200,
    "10**5000": lambda: 10**5000,
    "-(2**200)": lambda: -(2**200),
    "a complex": lambda: 1j,
    "no text": lambda: "",
    "a text": lambda: "text",
    "a lone surrogate": lambda: "\ud800",
    "a zero character": lambda: "\0",
    "a long text": lambda: "a" * 10**6,
    "digits of other scripts": lambda: "٣" * 64,
    "a recursive list": recursive_list,
    "a recursive dict": recursive_dict,
    "deep lists": lambda: deep(lambda part: [part]),
    "deep tuples": lambda: deep(lambda part: (part,)),
    "deep dicts": lambda: deep(lambda part: {"a": part}),
    "shared lists": shared,
    "a generator": lambda: (number for number in range(3)),
    "a generator without an end": itertools.count,
    "a generator that repeats": lambda: itertools.repeat((0, 0, 1)),
    "a long range": lambda: range(10**18),
    "a range of long numbers": lambda: range(10**30, 10**30 + 3),
    "a range": lambda: range(3),
    "a set": lambda: {1, 2},
    "a dict": lambda: {1: 2},
    "bools in a list": lambda: [True, False],
    "triples": lambda: [(1, 2, 3), (4, 5, 6)],
    "pairs": lambda: [(1, 2), (3, 4)],
    "uneven pairs": lambda: [(1, 2), (3,)],
    "pairs and numbers": lambda: [(1, 2), 3],
    "texts in a list": lambda: ["a", "b"],
    "bytes in a list": lambda: [b"a", b"b"],
    "None in a list": lambda: [None],
    "floats in a list": lambda: [1.0, 2.5],
    "NaN in a list": lambda: [math.nan],
    "long numbers in a list": lambda: [2**200],
    "negative numbers in a list": lambda: [-1],
    "a numpy int": lambda: np.int64(3),
    "a numpy bool": lambda: np.True_,
    "a numpy float": lambda: np.float64("nan"),
    "a long double": lambda: np.longdouble(1),
    "a numpy time": lambda: np.datetime64("2026-01-01"),
    "a numpy text": lambda: np.str_("a"),
    "a structure": lambda: np.zeros(1, "i4,O")[0],
    "an array": lambda: np.arange(4),
    "an array of floats": lambda: np.zeros(4),
    "an array of objects": lambda: np.array([1, "a", None], object),
    "an array of bools": lambda: np.ones(4, bool),
    "an array of texts": lambda: np.array(["a"]),
    "an array of times": lambda: np.array(["2026-01-01"], "M8[D]"),
    "an array of nothing": lambda: np.zeros(4, "V0"),
    "an empty array": lambda: np.zeros((0, 3)),
    "an array of no dimension": lambda: np.array(3),
    "triples in an array": lambda: np.zeros((4, 3), int),
    "an array of 3 dimensions": lambda: np.zeros((2, 2, 2), int),
    "an array that looks long": lambda: np.broadcast_to(np.int64(0), (1 << 40,)),
    "a masked array": lambda: np.ma.masked_array([1, 2], [True, False]),
    "big-endian": lambda: np.arange(4, dtype=">i4"),
    "array.array of floats": lambda: array("d", [1.0]),
    "array.array of texts": lambda: array("u" if sys.version_info < (3, 13) else "w", "abc"),
    "array.array": lambda: array("q", [1, 2]),
    "a memoryview": lambda: memoryview(b"abcdefgh"),
    "a memoryview with gaps": lambda: memoryview(b"abcdefgh")[::2],
    "a memoryview of 2 dimensions": lambda: memoryview(np.zeros((2, 2))),
    "a memoryview that was released": released,
    "a tensor": lambda: torch.arange(4),
    "a tensor of floats": lambda: torch.zeros(4),
    "a tensor of bools": lambda: torch.ones(4, dtype=torch.bool),
    "a tensor without memory": lambda: torch.empty(4, device="meta"),
    "a sparse tensor": lambda: torch.zeros(4).to_sparse(),
    "a tensor that looks long": lambda: torch.zeros(1, dtype=torch.int64).expand(1 << 40),
    "an enum": lambda: Number.ONE,
    "a type": lambda: int,
    "a function": lambda: print,
    "a module": lambda: math,
    "an object": object,
    "a Digest": lambda: KEY,
    "a short Digest": lambda: mmhash.digest(b"", algorithm="xxh3"),
    "NotImplemented": lambda: NotImplemented,
    "an ellipsis": lambda: ...,
    "an exception": lambda: ValueError("a"),
}

# Values that are read up to a limit: most of this module's time.
COSTLY = {"a long range", "shared lists"}


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["values", "costly values"]
)
def hostile(request: pytest.FixtureRequest) -> dict[str, Callable[[], Any]]:
    """Makers of hostile values, by their names."""
    return {name: make for name, make in HOSTILE.items() if (name in COSTLY) == request.param}


# By the function, a call that works; each argument is then replaced.
VSPAN, DSPAN = vllm.Span("id", 0, 4), dynamo.Span(HEX_16, 0, 4)
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
    sglang.hash_feature: {"x": np.zeros(4), "version": "0.5.23"},
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
    sglang.parse_mm_hash: {"text": HEX_16, "version": "0.5.23"},
    sglang.pads_by_release: {"hash_or_identity": 5},
    sglang.split_bundle: {
        "item": sglang.Item("IMAGE", [(0, 1), (2, 3)], np.zeros((2, 3))),
        "version": "0.5.23",
    },
    sglang.translate_pads: {"input_ids": IDS, "hashes": [5], "of": "0.5.9", "to": "0.5.23"},
    vllm.block_key: {
        "tokens": IDS,
        "parent": SECRET,
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
    registry.explain: {"key": KEY, "engine": "vllm"},
    registry.split_names: {"engines": "vllm"},
    registry.find: {"text": "vllm", "engine_fallback": "nearest-older"},
    registry.parse: {"text": "vllm", "engine_fallback": "nearest-older"},
    registry.parse_with_fields: {"text": "vllm", "engine_fallback": None},
    registry.request_fields: {
        "key": KEY,
        "engine": "vllm",
        "engine_fallback": None,
        "exif_orientation": 6,
    },
    tags.open_tag: {
        "tag": "a" * 80,
        "engine": "vllm",
        "tenant": "t",
        "secrets": [SECRET],
        "now": 0.0,
    },
    tags.sign_tag: {
        "key": KEY,
        "engine": "vllm",
        "tenant": "t",
        "expires": 2**40,
        "secrets": [SECRET],
    },
    tags.verify_tag: {
        "tag": tags.sign_tag(KEY, engine="e", tenant="t", expires=2**40, secrets=[SECRET]),
        "key": KEY,
        "engine": "e",
        "tenant": "t",
        "secrets": [SECRET],
        "now": 0.0,
    },
    mmhash.split: {"feature": np.zeros((4, 2)), "counts": [1, 3], "dim": 0},
    mmhash.Digest: {"algorithm": "blake3", "bytes": SECRET},
    mmhash.Digest.parse: {"text": str(KEY)},
}
# Options only: what may be hashed is the library's own subject.
OPTIONS: dict[Callable[..., Any], dict[str, Any]] = {
    mmhash.digest: {"algorithm": "blake3", "threads": 1},
    mmhash.key: {"algorithm": "blake3", "tenant": SECRET, "threads": 1},
    mmhash.keys: {"algorithm": "blake3", "tenant": SECRET, "threads": 1},
    mmhash.Hasher: {"algorithm": "blake3", "threads": 1},
}
PAIRS = [(call, name) for call, given in CALLS.items() for name in given]


@contextmanager
def bounded(seconds: int = 20) -> Iterator[None]:
    """Stop what computes for longer; a named error is as good as an answer."""

    def late(*_: object) -> None:
        pytest.fail("it takes too long")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def attempt(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call, and let only errors of ours pass as answers."""
    with bounded():
        try:
            result = call(**arguments)
            return list(result) if inspect.isgenerator(result) else result
        except MMHashError as error:
            found = error
    if len(str(found)) > 2000:
        raise AssertionError("an error of many pages")
    if is_of_failed_allocation(found):
        raise AssertionError("an allocation that succeeds where the kernel overcommits memory")
    return found


def is_of_failed_allocation(error: BaseException | None) -> bool:
    """Return True if an allocation failed on the way to an error."""
    while error is not None:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def public(module: ModuleType) -> set[Any]:
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]
    return {getattr(module, name) for name in names if callable(getattr(module, name))}


def test_each_public_function_is_attacked() -> None:
    missing: set[Any] = set()
    for module in (sglang, vllm, trtllm, dynamo, registry, tags):
        functions = {found for found in public(module) if inspect.isfunction(found)}
        missing |= functions - CALLS.keys()
    # Without arguments, and with items of the engine in a test of its own.
    assert missing == {registry.known, registry.known_in_requests, sglang.precompute}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.__module__}.{call.__qualname__}")
def test_each_argument_that_is_replaced_is_one_that_the_function_has(
    call: Callable[..., Any],
) -> None:
    result = attempt(call, CALLS[call])
    assert not isinstance(result, InputError), result
    parameters = inspect.signature(call).parameters
    variadic = {name for name, found in parameters.items() if found.kind is found.VAR_KEYWORD}
    unnamed = set(parameters) - set(CALLS[call]) - variadic
    assert unnamed <= {"grids"}


@pytest.mark.parametrize(
    ("call", "name"), PAIRS, ids=[f"{c.__module__}.{c.__qualname__}-{n}" for c, n in PAIRS]
)
def test_any_value_is_taken_or_refused_by_name(
    call: Callable[..., Any], name: str, hostile: dict[str, Callable[[], Any]]
) -> None:
    wrong = []
    for label, make in hostile.items():
        try:
            attempt(call, {**CALLS[call], name: make()})
        except Exception as error:  # noqa: BLE001  (any other is what is looked for)
            wrong.append(f"{label}: {error!r}"[:300])
    assert not wrong


@pytest.mark.parametrize("call", OPTIONS, ids=lambda call: call.__qualname__)
def test_any_option_is_taken_or_refused_by_name(call: Callable[..., Any]) -> None:
    items: tuple[Any, ...] = (
        () if call is mmhash.Hasher else (([b"abc"],) if call is mmhash.keys else (b"abc",))
    )
    wrong = []
    for name in OPTIONS[call]:
        for label, make in HOSTILE.items():
            if name == "threads" and label in {"2**31", "2**64", "2**200", "10**5000"}:
                continue  # the library's own tests bound threads
            try:
                attempt(lambda given=items, **more: call(*given, **more), {name: make()})
            except Exception as error:  # noqa: BLE001  (any other is what is looked for)
                wrong.append(f"{name}={label}: {error!r}"[:300])
    assert not wrong


NESTED: dict[str, tuple[Callable[..., Any], dict[str, Any], str, Callable[[Any], Any]]] = {
    "ids": (sglang.page_keys, {"page_size": 4}, "tokens", lambda value: [1, value]),
    "pairs": (sglang.page_keys, {"page_size": 4}, "tokens", lambda value: [(1, value)]),
    "more ids": (sglang.pad_input_ids, {"spans": []}, "input_ids", lambda value: [1, value]),
    "spans": (sglang.pad_input_ids, {"input_ids": IDS}, "spans", lambda value: [value]),
    "starts": (sglang.pad_input_ids, {"input_ids": IDS}, "spans", lambda value: [(value, 4, 5)]),
    "ends": (sglang.pad_input_ids, {"input_ids": IDS}, "spans", lambda value: [(0, value, 5)]),
    "hashes": (sglang.pad_input_ids, {"input_ids": IDS}, "spans", lambda value: [(0, 4, value)]),
    "hashes to combine": (sglang.combine_hashes, {}, "hashes", lambda value: [1, value]),
    "features": (sglang.hash_feature, {}, "x", lambda value: [torch.zeros(2), value]),
    "kwargs": (
        sglang.artifact_key,
        CALLS[sglang.artifact_key],
        "preprocess_kwargs",
        lambda value: {"a": [value]},
    ),
    "names of kwargs": (
        sglang.artifact_key,
        CALLS[sglang.artifact_key],
        "preprocess_kwargs",
        lambda value: {value: 1} if getattr(type(value), "__hash__", None) else {},
    ),
    "offsets": (
        sglang.split_bundle,
        {},
        "item",
        lambda value: sglang.Item("IMAGE", value, np.zeros((2, 3))),
    ),
    "grids": (
        sglang.split_bundle,
        {},
        "item",
        lambda value: sglang.Item(
            "VIDEO", [(0, 1), (2, 3)], np.zeros((2, 3)), None, {"video_grid_thw": value}
        ),
    ),
    "patches": (
        sglang.split_bundle,
        {},
        "item",
        lambda value: sglang.Item(
            "AUDIO", [(0, 1), (2, 3)], np.zeros((2, 3)), None, {"num_patches": value}
        ),
    ),
    "data": (
        sglang.split_bundle,
        {},
        "item",
        lambda value: sglang.Item("IMAGE", [(0, 1), (2, 3)], np.zeros((2, 3)), None, value),
    ),
    "vLLM ids": (vllm.block_keys, {"block_size": 1}, "tokens", lambda value: [1, value]),
    "vLLM items": (
        vllm.block_keys,
        {"tokens": IDS, "block_size": 4},
        "items",
        lambda value: [value],
    ),
    "identifiers": (
        vllm.block_keys,
        {"tokens": IDS, "block_size": 4},
        "items",
        lambda value: [vllm.Span(value, 0, 4)],
    ),
    "vLLM offsets": (
        vllm.block_keys,
        {"tokens": IDS, "block_size": 4},
        "items",
        lambda value: [vllm.Span("a", value, 4)],
    ),
    "vLLM lengths": (
        vllm.block_keys,
        {"tokens": IDS, "block_size": 4},
        "items",
        lambda value: [vllm.Span("a", 0, value)],
    ),
    "Lora": (
        vllm.block_keys,
        {"tokens": IDS, "block_size": 4},
        "lora",
        lambda value: vllm.Lora(value, "a"),
    ),
    "extra": (vllm.block_key, {"tokens": IDS}, "extra", lambda value: (("mm", value),)),
    "event extra": (vllm.event_extra_keys, {}, "extra", lambda value: (value,)),
    "values": (vllm.mm_hash, {}, "image", lambda value: [{"a": value}]),
    "names": (
        vllm.mm_hash,
        {},
        "image",
        lambda value: {value: 1} if getattr(type(value), "__hash__", None) else {},
    ),
    "media": (vllm.mm_hash, {}, "image", lambda value: vllm.EncodedMedia(value, b"a")),
    "original": (
        vllm.mm_hash,
        {},
        "image",
        lambda value: vllm.EncodedMedia(np.zeros(2), value),
    ),
    "io_config": (
        vllm.mm_hash,
        {},
        "image",
        lambda value: vllm.EncodedMedia(np.zeros(2), b"a", value),
    ),
    "uuids": (
        vllm.identifiers,
        {"modality": "image", "items": [b"a"], "model_id": "m"},
        "uuids",
        lambda value: [value],
    ),
    "items": (trtllm.mm_hash, {}, "item", lambda value: {"a": [value]}),
    "frames": (trtllm.Video, {"metadata": {}}, "frames", lambda value: [value]),
    "a video's frames": (
        trtllm.mm_hash,
        {},
        "item",
        lambda value: trtllm.Video([value], {"fps": value}),
    ),
    "Dynamo's ids": (dynamo.block_keys, {"block_size": 1}, "tokens", lambda value: [1, value]),
    "Dynamo's items": (
        dynamo.block_keys,
        {"tokens": IDS, "block_size": 4},
        "items",
        lambda value: [[value]],
    ),
    "spans of Dynamo": (dynamo.routing_tokens, {"tokens": IDS}, "spans", lambda value: [value]),
    "offsets of Dynamo": (
        dynamo.routing_tokens,
        {"tokens": IDS},
        "spans",
        lambda value: [dynamo.Span(HEX_16, value, 4)],
    ),
    "masks of Dynamo": (
        dynamo.routing_tokens,
        {"tokens": IDS},
        "spans",
        lambda value: [dynamo.Span(HEX_16, 0, 4, value)],
    ),
    "secrets": (tags.sign_tag, CALLS[tags.sign_tag], "secrets", lambda value: [value]),
    "grids of a bundle": (
        lambda **given: mmhash.split(np.zeros((4, 2)), **given),
        {},
        "grids",
        lambda value: [value, [1, value]],
    ),
    "counts of a bundle": (
        lambda **given: mmhash.split(np.zeros((4, 2)), **given),
        {},
        "counts",
        lambda value: [1, value],
    ),
}


@pytest.mark.parametrize("case", NESTED.values(), ids=NESTED)
def test_any_value_within_an_argument_is_taken_or_refused_by_name(
    case: tuple[Callable[..., Any], dict[str, Any], str, Callable[[Any], Any]],
    hostile: dict[str, Callable[[], Any]],
) -> None:
    call, given, name, wrap = case
    wrong = []
    for label, make in hostile.items():
        value = make()
        try:
            try:
                wrapped = wrap(value)
            except (InputError, RuntimeError, TypeError, ValueError):  # it cannot be made at all
                continue
            attempt(call, {**given, name: wrapped})
        except Exception as error:  # noqa: BLE001  (any other is what is looked for)
            wrong.append(f"{label}: {error!r}"[:300])
    assert not wrong


@pytest.mark.parametrize(
    "tokens",
    [
        b"abcdefgh",
        bytearray(b"abcdefgh"),
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
        torch.zeros(4),
        array("d", [1.0]),
    ],
    ids=lambda tokens: repr(tokens)[:40].partition(" at 0x")[0],
)
def test_what_are_no_ids_has_no_keys(tokens: Any) -> None:
    for call in (
        lambda: sglang.page_keys(tokens, 1),
        lambda: sglang.event_keys(tokens, 1),
        lambda: sglang.pad_input_ids(tokens, []),
        lambda: sglang.translate_pads(tokens, [], of="0.5.9", to="0.5.23"),
        lambda: vllm.block_keys(tokens, 1),
        lambda: dynamo.block_keys(tokens, 1),
        lambda: dynamo.routing_tokens(tokens, []),
    ):
        with pytest.raises(InputError):
            call()


@pytest.mark.parametrize("page_size", [1.0, "1", True, math.nan, -1, 0, [1], 2**200])
def test_what_is_no_size_of_a_page_is_refused(page_size: Any) -> None:
    with pytest.raises(InputError):
        sglang.page_keys(IDS, page_size)
    with pytest.raises(InputError):
        vllm.block_keys(IDS, page_size)
    with pytest.raises(InputError):
        dynamo.block_keys(IDS, page_size)


def test_a_subclass_counts_as_what_it_holds() -> None:
    assert sglang.pad_values(Number.ONE) == sglang.pad_values(1)
    assert vllm.mm_hash(image=np.str_("a")) == vllm.mm_hash(image="a")
    assert trtllm.mm_hash([Number.ONE, np.str_("a"), np.bytes_(b"b")]) == trtllm.mm_hash(
        [1, "a", b"b"]
    )


def test_a_tag_never_outlives_its_time_by_nan() -> None:
    tag = tags.sign_tag(KEY, engine="e", tenant=None, expires=5, secrets=[SECRET])
    for now in (math.nan, math.inf, -math.inf, True, "1", 2**200):
        with pytest.raises(InputError):
            tags.verify_tag(tag, KEY, engine="e", secrets=[SECRET], now=now)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["nbytes", "consumers", "timeout"])
def test_a_pool_is_made_or_refused_by_name(name: str) -> None:
    given: dict[str, Any] = {"nbytes": 1 << 16, "consumers": 1, "timeout": 1.0}
    wrong = []
    for label, make in HOSTILE.items():
        if name == "nbytes" and label == "2**31":
            continue  # a host may have them
        try:
            with bounded():
                SharedPool(**{**given, name: make()}).close()
        except MMHashError:
            pass
        except Exception as error:  # noqa: BLE001  (any other is what is looked for)
            wrong.append(f"{label}: {error!r}"[:300])
    assert not wrong


def test_the_budget_of_a_pool_is_divided_or_refused_by_name() -> None:
    for make in HOSTILE.values():
        with suppress(MMHashError):
            budget(make())


def test_precompute_takes_engine_items_only() -> None:
    async def main() -> None:
        async with mmhash.AsyncHasher() as hasher:
            for label, make in HOSTILE.items():
                for items in (make(), [make()]):
                    try:
                        with bounded():
                            await sglang.precompute(items, hasher)
                    except MMHashError:
                        pass
                    except Exception as error:  # noqa: BLE001  (as above)
                        pytest.fail(f"{label}: {error!r}"[:500])

    asyncio.run(main())
