"""The engines' vectors: where they are, and how a case's input is built (engines/README.md)."""

import base64
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

FOLDER = Path(os.environ.get("MMHASH_VECTORS", Path(__file__).parent / "engines"))


class Case(NamedTuple):
    """A value that an engine's own code printed."""

    file: str
    version: str
    name: str
    input: dict[str, Any]
    expect: dict[str, Any]


def cases() -> Iterator[Case]:
    """Every case of every file of the schema, in whatever number a file has."""
    for path in sorted(FOLDER.glob("*.json")):
        content = json.loads(path.read_text())
        if "schema" not in content:
            continue
        assert content["schema"] == 1, path
        for case in content["cases"]:
            version = case["input"].get("version", content["source"]["version"])
            yield Case(path.stem, version, case["name"], case["input"], case["expect"])


def payload(data: dict[str, Any]) -> bytes:
    """The bytes that a payload spells."""
    if "hex" in data:
        return bytes.fromhex(data["hex"])
    if "b64" in data:
        return base64.b64decode(data["b64"])
    noise = np.random.Generator(np.random.PCG64(data["pcg64"])).bytes(data["nbytes"])
    values = np.frombuffer(noise, np.uint8).copy()
    if transform := data.get("transform"):
        values[transform["at"] :: transform["every"]] &= transform["and"]
    return values.tobytes()


def build(what: dict[str, Any]) -> Any:
    """The object that a case describes."""
    kind = what["kind"]
    match kind:
        case "list":
            return [build(item) for item in what["items"]]
        case "tuple":
            return tuple(build(item) for item in what["items"])
        case "dict":
            return {name: build(item) for name, item in what["items"]}
        case "bytes":
            return payload(what["data"])
        case "value":
            return what["value"]
        case "float":
            return float.fromhex(what["hex"])
        case "encoded_image":
            image = Image.open(io.BytesIO(payload(what["data"])))
            image.load()
            return image
        case "image":
            return _image(what)
        case "tensor" | "ndarray":
            return _array(what)
    raise ValueError(kind)


def _image(what: dict[str, Any]) -> Image.Image:
    image = Image.frombytes(what["mode"], tuple(what["size"]), payload(what["data"]))
    if "palette" in what:
        image.putpalette(bytes.fromhex(what["palette"]))
    transparency = what.get("transparency")
    if isinstance(transparency, dict):
        transparency = bytes.fromhex(transparency["hex"])
    if transparency is not None:
        image.info["transparency"] = transparency
    return image


def _array(what: dict[str, Any]) -> Any:
    data = payload(what["data"])
    values: Any
    if what["kind"] == "tensor":
        flat = torch.tensor(bytearray(data), dtype=torch.uint8)
        values = flat.view(getattr(torch, what["dtype"]))
    else:
        values = np.frombuffer(data, what["dtype"])
    values = values.reshape(what["shape"])
    for operation, *arguments in what.get("view", []):
        match operation:
            case "slice":
                axis, *bounds = arguments
                values = values[(slice(None),) * axis + (slice(*bounds),)]
            case "expand":
                values = values.expand(arguments[0])
            case "permute":
                turn = values.permute if what["kind"] == "tensor" else values.transpose
                values = turn(arguments[0])
            case _:
                raise ValueError(operation)
    return values
