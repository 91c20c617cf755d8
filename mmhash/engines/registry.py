"""A key as each engine's request wants it, by the engine's name and release: `sglang@0.5.23`."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mmhash.digest import Digest
from mmhash.engines import checks, dynamo, sglang, trtllm, vllm
from mmhash.engines.releases import Releases
from mmhash.errors import InputValueError

RequestFields = dict[str, Any]
"""The fields that carry the key, and what the engine makes of them."""


class _Engine(NamedTuple):
    releases: Releases[Any]
    request_fields: Callable[[Digest, str], RequestFields]


def _sglang(key: Digest, version: str) -> RequestFields:
    pads = {"pad_values": sglang.pad_values(key, version=version)}
    if sglang.RELEASES.recipe(version).mm_hashes:
        return {"mm_hash": sglang.mm_hash(key), **pads}
    return pads


_ENGINES = {
    "sglang": _Engine(sglang.RELEASES, _sglang),
    "vllm": _Engine(vllm.RELEASES, lambda key, _: {"uuid": vllm.uuid(key)}),
    "trtllm": _Engine(trtllm.RELEASES, lambda key, _: {"uuid": trtllm.uuid(key)}),
    "dynamo": _Engine(dynamo.RELEASES, lambda key, _: {"mm_hash": f"{key.u64:016x}"}),
}


def known() -> dict[str, list[str]]:
    """Every engine, and the ranges of its releases that are known, oldest first."""
    return {name: [str(of) for of in engine.releases] for name, engine in _ENGINES.items()}


def parse(text: str) -> tuple[str, str]:
    """The engine and the release that `sglang@0.5.23` names; `sglang` is its newest known."""
    name, _, version = checks.text("an engine", text).partition("@")
    if name not in _ENGINES:
        raise InputValueError(f"no engine {name[:40]!r}: known are {', '.join(_ENGINES)}")
    releases = _ENGINES[name].releases
    version = version or releases.latest
    releases.recipe(version)
    return name, version


def request_fields(key: Digest, engine: str) -> RequestFields:
    """The key as that engine, `sglang@0.5.23`, wants it."""
    name, version = parse(engine)
    return _ENGINES[name].request_fields(checks.key("request_fields", key), version)


def explain(key: Digest, engine: str) -> Iterator[tuple[str, str]]:
    """Each step from the key to what the engine's cache knows it by: what it is, and its value."""
    name, version = parse(engine)
    key = checks.key("spell", key)
    match name:
        case "sglang":
            yield "of the key SGLang keeps 64 bits", f"{key.u64:016x}"
            if sglang.RELEASES.recipe(version).mm_hashes:
                yield "send in mm_hashes of /generate", sglang.mm_hash(key)
            pads = sglang.pad_values(key, version=version)
            yield "pad values in the prefix cache", " ".join(map(str, pads))
            ids = sglang.padding(key, 6, version=version)
            yield "6 placeholders become", " ".join(map(str, ids))
        case "vllm":
            identifier = vllm.uuid(key)
            yield "send as uuid of the content part", identifier
            item = vllm.Span(identifier, 3, 13)
            (extra,) = vllm.extra_keys([0] * 16, 16, version=version, items=[item])
            yield "a block binds it, 3 tokens in, as", repr(extra)
        case "trtllm":
            yield "send in multi_modal_uuids", trtllm.uuid(key)
            yield "as the 8 numbers of a block key", " ".join(map(str, trtllm.int32s(key)))
        case "dynamo":
            sent = f"{key.u64:016x}"
            yield "send in extra_args.mm_hashes", sent
            yield "Dynamo gives it to vLLM as uuid", dynamo.uuid(sent, version=version)
            yield "and routes by the pad value", str(dynamo.pad_value(sent, version=version))
