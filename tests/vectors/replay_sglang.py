"""SGLang's vectors, answered by mmhash."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mmhash.engines import sglang
from mmhash.view import bytes_of
from tests.vectors.engine_cases import Case, build, payload


def cpu_hash(case: Case) -> dict[str, Any]:
    return {"hash_hex": f"{sglang.hash_feature(build(case.input), version=case.version):016x}"}


def file_hash(case: Case) -> dict[str, Any]:
    found = sglang.file_hash(payload(case.input["data"]), version=case.version)
    return {"hash_hex": f"{found:016x}"}


def gpu_hash(case: Case) -> dict[str, Any]:
    data = build(case.input)
    return {"hash_hex": f"{sglang.gpu_hash(data):016x}", "nbytes": len(bytes_of(data))}


def pad_values(case: Case) -> dict[str, Any]:
    given, version = case.input, case.version
    recipe = sglang.RELEASES.recipe(version)
    identity = bytes.fromhex(given["identity_hex"]) if "identity_hex" in given else None
    number = int(given["hash_hex"], 16) if "hash_hex" in given else None
    match given["op"]:
        case "hash_to_pads" | "identity_then_hash":
            assert number is not None
            return _pads(number, None, version)
        case "identity_to_pads":
            assert identity is not None
            return _pads(identity, identity, version)
        case "padding_sequence":
            item: Any = identity if number is None else number
            lengths = given["lengths"]
            return {
                "sequences": [sglang.padding(item, length, version=version) for length in lengths]
            }
        case "mm_hashes" if given["num_items"] == 1 and "accepted" in case.expect:
            (entry,) = given["mm_hashes"]
            hashes = _accepted([entry], version)
            if hashes == [None]:
                return {"accepted": False, "fallback": "hash_feature"}
            pads = _pads(hashes[0], None, version)
            return {"accepted": True} | {k: v for k, v in pads.items() if k != "identity_hex"}
        case "mm_hashes":
            entries = list(given["mm_hashes"])
            if len(entries) != given["num_items"]:
                return {"items": [None] * given["num_items"], "warnings": 1}
            hashes = _accepted(entries, version)
            items = [None if number is None else f"{number:016x}" for number in hashes]
            return {"items": items, "warnings": items.count(None)}
    raise ValueError(given["op"], recipe)


def _pads(item: Any, identity: bytes | None, version: str) -> dict[str, Any]:
    recipe = sglang.RELEASES.recipe(version)
    pads = sglang.pad_values(item, version=version)
    number = int.from_bytes(identity[:8], "big") if identity else item
    if recipe.pads == "modulo":
        return {"hash_hex": f"{number:x}", "pad_value": pads[0]}
    answer: dict[str, Any] = {"hash_hex": f"{number % 2**64:016x}", "pad_value": pads[0]}
    if recipe.pads == "wide":
        answer |= {"pad_values": pads, "identity_hex": identity.hex() if identity else None}
    return answer


def _accepted(entries: list[Any], version: str) -> list[Any]:
    hashes: list[Any] = []
    for entry in entries:
        try:
            hashes.append(sglang.parse_mm_hash(entry, version=version))
        except (TypeError, ValueError):
            hashes.append(None)
    return hashes


def page_hash(case: Case) -> dict[str, Any]:
    given, version = case.input, case.version
    match given["op"]:
        case "hash_str_to_int64":
            return {"int64": sglang.event_id(given["hash"])}
        case "get_hash_str":
            tokens = [tuple(token) if given.get("pairs") else token for token in given["tokens"]]
            size = given["page_size"]
            keys = sglang.page_keys(tokens, size, prior=given["prior_hash"], version=version)
            if size is not None:
                return {"hashes": keys}
            return {"hash": keys[0], "int64": sglang.event_id(keys[0])}
        case "namespace":
            space = {name: given[name] for name in ("extra_key", "cache_salt")}
            tokens, size = given["tokens"], given["page_size"]
            events = sglang.event_keys(
                tokens, size, cache_salt=space["cache_salt"], version=version
            )
            ids = [sglang.event_id(key) for key in events]
            seed = sglang.event_seed(**space, version=version)
            return {
                "storage_seed": sglang.namespace_seed(**space, version=version),
                "storage_hashes": sglang.page_keys(tokens, size, **space, version=version),
                "event_hashes": events,
                "event_int64": ids,
                "kv_event_seed_hex": seed.hex() if seed else None,
                "namespaced_block_hash": [sglang.namespaced_event_id(id_, seed) for id_ in ids],
            }
    raise ValueError(given["op"])


def namespaced_hash(case: Case) -> dict[str, Any]:
    given = case.input
    match given["op"]:
        case "resolve":
            if "existing_hash_hex" in given:
                number = int(given["existing_hash_hex"], 16)
            elif "existing_hash" in given:
                number = given["existing_hash"]
            else:
                feature = given.get("feature") or given["precomputed_embeddings"]
                number = sglang.hash_feature(build(feature), version=case.version)
            bound = sglang.namespaced_hash(number, given["namespace"], version=case.version)
            return {"hash_hex": f"{bound:016x}"}
        case "build_artifact_key" | "muse_spark":
            kwargs = given["preprocess_kwargs"]
            key = sglang.artifact_key(
                given["content_digest"],
                modality=given["modality"],
                processor_fingerprint=given["processor_fingerprint"],
                preprocess_kwargs=kwargs and build(kwargs),
            )
            if given["op"] == "build_artifact_key":
                return {"key": key}
            bound = sglang.namespaced_hash(0, key, version=case.version)
            return {"key": key, "hash_hex": f"{bound:016x}"}
        case "parse_content_hash":
            return {"value": sglang.parse_content_hash(given["value"])}
        case "snapshot_media":
            media = build(given["media"])
            answer = {"content_digest": sglang.content_hash(media)}
            nbytes = len(media) if isinstance(media, bytes) else _nbytes(media)
            source = {bytes: "bytes", torch.Tensor: "tensor", np.ndarray: "ndarray"}
            return answer | {"size_bytes": nbytes, "source": source.get(type(media), "pil")}
    raise ValueError(given["op"])


def _nbytes(media: Any) -> int:
    return int(media.nbytes) if hasattr(media, "nbytes") else len(media.tobytes())


def split(case: Case) -> dict[str, Any]:
    given = case.input
    data = {name: build(value) for name, value in given.get("model_specific_data", {}).items()}
    if "grid" in given:
        data[given["grid"]["key"]] = _grid(given["grid"])
    kept = 12345
    item = sglang.BundleItem(
        modality=given["modality"],
        offsets=[tuple(offset) for offset in given["offsets"]],
        feature=build(given["feature"]) if "feature" in given else None,
        precomputed_embeddings=build(given["precomputed_embeddings"])
        if "precomputed_embeddings" in given
        else None,
        model_specific_data=data,
        hash=kept,
    )
    items = sglang.split_bundle(item)
    answers: list[dict[str, Any]] = []
    start = 0
    for part, expected in zip(items, case.expect["items"], strict=True):
        feature = part.feature if part.feature is not None else part.precomputed_embeddings
        end = start + len(feature)
        answer: dict[str, Any] = {
            "slice": [start, end] if end > start else None,
            "offsets": [list(offset) for offset in part.offsets or ()],
            "hash_hex": f"{sglang.hash_feature(feature, version=case.version):016x}",
            "hash_kept": part.hash == kept,
        }
        if "grid" in given:
            grid = part.model_specific_data[given["grid"]["key"]]
            answer["grid"] = grid.tolist() if hasattr(grid, "tolist") else grid
        if "model_specific_shapes" in expected:
            data = part.model_specific_data
            answer["model_specific_shapes"] = {name: _shape(data[name]) for name in data}
        answers.append(answer)
        start = end
    return {"split": items[0] is not item, "items": answers}


def _shape(value: Any) -> Any:
    return list(value.shape) if hasattr(value, "shape") else len(value)


def _grid(grid: dict[str, Any]) -> Any:
    match grid["container"]:
        case "tensor":
            return torch.tensor(grid["value"])
        case "ndarray":
            return np.array(grid["value"])
    return grid["value"]


FILES: dict[str, Callable[[Case], object]] = {
    "sglang_cpu_hash": cpu_hash,
    "sglang_file_hash": file_hash,
    "sglang_gpu_hash": gpu_hash,
    "sglang_pad_values": pad_values,
    "sglang_page_hash": page_hash,
    "sglang_namespaced_hash": namespaced_hash,
    "sglang_split": split,
}
