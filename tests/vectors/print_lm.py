"""Print LMCache's and LMDeploy's vectors with their own code, from their wheels.

    pip download --no-deps lmcache==0.5.6 lmcache==0.5.4 … lmdeploy==0.18.0   # into a folder
    python tests/vectors/print_lm.py FOLDER

Only the functions that hash are taken from a wheel: its package imports CUDA extensions.
"""

import ast
import enum
import functools
import hashlib
import json
import re
import string
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Tuple  # noqa: UP035  (the engines' annotations name it)

import numpy as np
import torch

from tests.vectors.engine_cases import build

ENGINES = Path(__file__).parent / "engines"

LMCACHE = "lmcache/integration/vllm/utils.py"
LMDEPLOY = "lmdeploy/pytorch/multimodal/data_type.py"
NAMES = {
    "_MM_TOKEN_VALUE_BITS",
    "_MM_TOKEN_VALUE_MASK",
    "_MM_VALUES_PER_DIGEST",
    "mm_hash_to_token_values",
    "hex_hash_to_int16",
    "apply_mm_hashes_to_token_ids",
    "_hash_multimodal_value",
    "make_multimodal_content_hash",
}

KEY = "951f3cdb6fd7377a58c8142fa12ae2884b1ed885a64675654e7ca1f04b9b825a"
IDENTIFIERS = {
    "key": KEY,
    "another_key": KEY[::-1],
    "uppercase": KEY.upper(),
    "with_0x": "0x" + KEY[:16],
    "with_0X": "0XaB",
    "short": "f",
    "blanks_around": f"  {KEY[:8]} ",
    "underscore": "12_34",
    "minus": "-1",
    "request_scoped": "chatcmpl-5a0e-image-0",
    "empty": "",
    "only_0x": "0x",
    "unicode": "clé-画像",
    "arabic_digits": "\u0661\u0662",
    "long": "ab" * 4096,
}
LENGTHS = (0, 1, 7, 8, 9, 200)


def load(wheel: Path, member: str) -> dict[str, Any]:
    """Run the definitions of `NAMES` that the member has."""
    source = zipfile.ZipFile(wheel).read(member).decode()
    body = [
        node
        for node in ast.parse(source).body
        if getattr(node, "name", None) in NAMES
        or (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) in NAMES)
    ]
    names: dict[str, Any] = {
        "enum": enum,
        "functools": functools,
        "hashlib": hashlib,
        "string": string,
        "torch": torch,
    }
    names |= {"np": np, "Any": Any, "Tuple": Tuple, "Tensor": torch.Tensor}  # noqa: UP006
    exec(compile(ast.Module(body, []), str(wheel), "exec"), names)
    return names


def lmcache_cases(names: dict[str, Any], version: str) -> Iterator[dict[str, Any]]:
    for of, identifier in IDENTIFIERS.items():
        for length in LENGTHS if of in {"key", "request_scoped"} else (3,):
            given = {"op": "token_values", "identifier": identifier, "length": length}
            yield case(f"{of}_{length}", given, version, lambda g: values(names, g))
    spans = [[KEY, 2, 5], ["chatcmpl-1-image-1", 9, 20]]
    for count in (0, 2, 4, 12, 40):
        given = {"op": "substitute", "tokens": list(range(100, 100 + count)), "spans": spans}
        yield case(f"substitute_{count}", given, version, lambda g: substituted(names, g))


def values(names: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    if "mm_hash_to_token_values" in names:
        found = names["mm_hash_to_token_values"](given["identifier"], given["length"])
        return {"values": list(found)}
    return {"values": [names["hex_hash_to_int16"](given["identifier"])] * given["length"]}


def substituted(names: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    spans = given["spans"]
    tokens = names["apply_mm_hashes_to_token_ids"](
        torch.tensor(given["tokens"], dtype=torch.int64),
        [identifier for identifier, *_ in spans],
        [SimpleNamespace(offset=offset, length=length) for _, offset, length in spans],
    )
    return {"tokens": tokens.tolist()}


def tensor(dtype: str, shape: list[int], seed: int, **more: Any) -> dict[str, Any]:
    size = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    nbytes = int(np.prod(shape, dtype=np.int64)) * size
    data: dict[str, Any] = {"pcg64": seed, "nbytes": nbytes}
    if dtype == "bool":
        data["transform"] = {"at": 0, "every": 1, "and": 1}
    return {"kind": "tensor", "dtype": dtype, "shape": shape, "data": data, **more}


def array(dtype: str, shape: list[int], seed: int, **more: Any) -> dict[str, Any]:
    nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return {
        "kind": "ndarray",
        "dtype": dtype,
        "shape": shape,
        "data": {"pcg64": seed, "nbytes": nbytes},
        **more,
    }


def value(given: Any) -> dict[str, Any]:
    return {"kind": "value", "value": given}


def lmdeploy_cases(names: dict[str, Any], version: str) -> Iterator[dict[str, Any]]:
    nothing = value(None)
    grid = {
        "kind": "tensor",
        "dtype": "int64",
        "shape": [1, 3],
        "data": {"hex": "01" + "00" * 7 + "1e" + "00" * 7 + "28" + "00" * 7},
    }
    meta = {"kind": "dict", "items": [["grid_thw", grid], ["image_token_id", value(151655)]]}
    turned = {"kind": "dict", "items": meta["items"][::-1]}
    positions = array("int64", [3, 7], 5)
    inputs = {
        **{
            f"tensor_{dtype}": (tensor(dtype, [4, 6], 1), nothing, nothing)
            for dtype in ("float32", "float16", "bfloat16", "uint8", "int64", "bool", "float64")
        },
        "shape_30_100": (tensor("float16", [30, 100], 2), nothing, nothing),
        "shape_100_30": (tensor("float16", [100, 30], 2), nothing, nothing),
        "vector": (tensor("float32", [5], 3), nothing, nothing),
        "empty": (tensor("float32", [0, 4], 3), nothing, nothing),
        "permuted": (
            tensor("float32", [2, 3, 4], 4, view=[["permute", [2, 0, 1]]], strided=True),
            nothing,
            nothing,
        ),
        "list_of_tensors": (
            {
                "kind": "list",
                "items": [tensor("bfloat16", [2, 3], 6), tensor("bfloat16", [1, 3], 7)],
            },
            nothing,
            nothing,
        ),
        "tuple_of_tensors": (
            {"kind": "tuple", "items": [tensor("float32", [2], 6)]},
            nothing,
            nothing,
        ),
        "qwen": (tensor("bfloat16", [12, 8], 8), meta, positions),
        "qwen_other_order": (tensor("bfloat16", [12, 8], 8), turned, positions),
        "positions_int32": (tensor("bfloat16", [12, 8], 8), meta, array("int32", [3, 7], 5)),
        "array_of_no_dimensions": (array("float64", [], 9), nothing, nothing),
        "array_transposed": (
            array("float32", [3, 4], 9, view=[["permute", [1, 0]]], strided=True),
            nothing,
            nothing,
        ),
        "array_big_endian": (array(">u2", [3, 4], 9), nothing, nothing),
        "plain_values": (
            {
                "kind": "list",
                "items": [value(1), value(True), value("1"), value(1.5), value(None), value(-3)],
            },
            {"kind": "dict", "items": [["b", value("é")], ["a", {"kind": "list", "items": []}]]},
            nothing,
        ),
        "bytes": ({"kind": "bytes", "data": {"hex": "0001ff27"}}, nothing, nothing),
    }
    for name, (data, metadata, places) in inputs.items():
        given = {"op": "content_hash", "data": data, "meta": metadata, "mrope_pos_ids": places}
        yield case(name, given, version, lambda g: content(names, g))


def content(names: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    parts = [build(given[name]) for name in ("data", "meta", "mrope_pos_ids")]
    return {"hash": names["make_multimodal_content_hash"](*parts)}


def case(name: str, given: dict[str, Any], version: str, run: Any) -> dict[str, Any]:
    given = {**given, "version": version}
    try:
        expect = run(given)
    except Exception as error:  # noqa: BLE001  (of whichever kind the engine has)
        expect = {"error": type(error).__name__}
    return {"name": f"{version}_{name}", "input": given, "expect": expect}


def write(name: str, symbols: str, note: str, found: list[dict[str, Any]]) -> None:
    source = {
        "package": name,
        "version": found[0]["input"]["version"],
        "symbol": symbols,
        "how": "ast-extracted from the wheel of each release (tests/vectors/print_lm.py)",
    }
    head = json.dumps({"schema": 1, "source": source, "note": note})
    cases = ",\n".join(json.dumps(case) for case in found)
    stem = {"lmcache": "lmcache_token_values", "lmdeploy": "lmdeploy_content_hash"}[name]
    (ENGINES / f"{stem}.json").write_text(f'{head[:-1]}, "cases": [\n{cases}\n]}}\n')


def main(folder: Path) -> None:
    wheels = {tuple(re.split(r"-", path.name)[:2]): path for path in sorted(folder.glob("lm*.whl"))}
    cached: list[dict[str, Any]] = []
    deployed: list[dict[str, Any]] = []
    for (package, version), path in sorted(wheels.items(), reverse=True):
        if package == "lmcache":
            cached += lmcache_cases(load(path, LMCACHE), version)
        else:
            deployed += lmdeploy_cases(load(path, LMDEPLOY), version)
    write(
        "lmcache",
        "lmcache.integration.vllm.utils.{mm_hash_to_token_values,hex_hash_to_int16,"
        "apply_mm_hashes_to_token_ids}",
        "The values that replace an item's placeholders before chunks are hashed.",
        cached,
    )
    write(
        "lmdeploy",
        "lmdeploy.pytorch.multimodal.data_type.make_multimodal_content_hash",
        "The hash that binds a block of the prefix cache to an item.",
        deployed,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
