"""TensorRT-LLM's vectors, answered by mmhash."""

from collections.abc import Callable
from typing import Any

from mmhash.engines import trtllm
from tests.vectors.engine_cases import Case, build


def replay(case: Case) -> object:
    given = case.input
    if given["op"] == "hexdigest_to_int32":
        return {"int32": trtllm.int32s(given["hex"])}
    assert given["op"] == "apply_mm_hashes"
    # The file's version is a commit, which has the recipe of the latest release.
    hashes = trtllm.mm_hashes([item_of(item) for item in given["items"]], uuids=given["uuids"])
    return {
        "hashes": hashes,
        "int32": [trtllm.int32s(text) for text in hashes],
        "uuids": given["uuids"],
    }


def item_of(what: dict[str, Any]) -> Any:
    match what["kind"]:
        case "audio_data":
            return trtllm.Audio(build(what["samples"]), what["sample_rate"])
        case "video_data":
            audio = what.get("audio")
            return trtllm.Video(
                [build(frame) for frame in what["frames"]],
                build(what["metadata"]),
                audio=None if audio is None else item_of(audio),
                raw_bytes_hash=what.get("raw_bytes_hash"),
            )
    return build(what)


FILES: dict[str, Callable[[Case], object]] = {"trtllm_mm_hash": replay}
