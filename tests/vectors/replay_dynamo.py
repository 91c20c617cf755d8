"""Dynamo's vectors, answered by mmhash."""

from collections.abc import Callable

import numpy as np

from mmhash.engines import dynamo
from tests.vectors.engine_cases import Case, build, payload


def replay(case: Case) -> object:
    given, version = case.input, case.version
    match given["op"]:
        case "decoded_hash":
            pixels = np.frombuffer(payload(given["data"]), np.uint8).reshape(given["shape"])
            return {"hash_hex": dynamo.mm_hash(pixels, version=version)}
        case "url_hash":
            return {"hash_hex": dynamo.url_hash(given["url"], version=version)}
        case "block_hashes":
            keys = dynamo.block_keys(
                given["tokens"],
                given["block_size"],
                items=given["mm_hashes_per_block"],
                lora=given.get("lora_name"),
                cache_salt=given.get("cache_namespace"),
                eagle=given.get("is_eagle", False),
                version=version,
            )
            return {
                "block_hashes": keys,
                "sequence_hashes": dynamo.sequence_keys(keys, version=version),
            }
        case "pad_value":
            return {"pad_value": dynamo.pad_value(given["hash_hex"], version=version)}
        case "routing_tokens":
            return {"info": routing_info(case)}
        case "vllm_image_uuid":
            return {"uuid": dynamo.image_uuid(build(given["image"]), version=version)}
        case "trtllm_bytes":
            return {"hash": dynamo.bytes_hash(payload(given["data"]), version=version)}
    raise ValueError(given["op"])


def routing_info(case: Case) -> object:
    tokens = case.input["tokens"]
    spans = [dynamo.RoutingSpan(**feature) for feature in case.input["features"]]
    routed = dynamo.routing_tokens(tokens, spans, version=case.version)
    if routed is None:
        return None
    return {
        "routing_token_ids": routed,
        "block_mm_infos": [],
        "expanded_prompt_len": len(tokens),
    }


FILES: dict[str, Callable[[Case], object]] = {"dynamo_mm_hash": replay}
