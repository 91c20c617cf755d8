"""The library against the vectors, and the vectors against the spec."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from PIL import Image

import mmhash
from mmhash import Hasher
from mmhash.digest import Digest
from mmhash.engines import vllm
from mmhash.framing import frame
from mmhash.media import AudioRecipe, VideoRecipe, recipe_key

HERE = Path(__file__).parent
DIGESTS = json.loads((HERE / "digest.json").read_text())
KEYS = json.loads((HERE / "key.json").read_text())
RECIPES = json.loads((HERE / "recipe.json").read_text())
OFFICIAL = json.loads((HERE / "blake3_official.json").read_text())
PATTERN = (np.arange(6 << 20, dtype=np.uint32) % 251).astype(np.uint8)


def test_vectors_are_what_the_spec_says_today() -> None:
    spec = importlib.util.spec_from_file_location("make_vectors", HERE / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    for name, content in make.vectors().items():
        assert json.loads((HERE / name).read_text()) == content, (
            f"run tests/vectors/make.py: {name}"
        )


@pytest.mark.parametrize("case", OFFICIAL["cases"], ids=lambda case: str(case["input_len"]))
def test_blake3_is_the_official_blake3(case: dict[str, Any]) -> None:
    data = PATTERN[: case["input_len"]]
    assert mmhash.digest(data).hex() == case["hash"][:64]
    assert Hasher().update(data).hexdigest() == case["hash"][:64]


@pytest.mark.parametrize("case", DIGESTS["cases"], ids=lambda case: case["why"])
@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_digest(case: dict[str, Any], algorithm: str) -> None:
    data = PATTERN[: case["nbytes"]]
    for threads in (None, 1, 2):
        assert mmhash.digest(data, algorithm=algorithm, threads=threads).hex() == case[algorithm]
    assert Hasher(algorithm).update(data).hexdigest() == case[algorithm]


@pytest.mark.parametrize("case", KEYS["cases"], ids=lambda case: case["why"])
def test_key(case: dict[str, Any]) -> None:
    item = build(case["item"])
    tenant = bytes.fromhex(KEYS["tenant"])
    assert mmhash.key(item).hex() == case["blake3"]
    assert mmhash.key(item, algorithm="xxh3").hex() == case["xxh3"]
    assert mmhash.key(item, tenant=tenant).hex() == case["blake3_tenant"]


@pytest.mark.parametrize("case", RECIPES["cases"], ids=lambda case: case["why"])
def test_recipe(case: dict[str, Any]) -> None:
    given = case["recipe"]
    decoder = given.get("decoder", "")
    recipe: VideoRecipe | AudioRecipe
    if "indices" in given:
        size = tuple(given["size"]) if "size" in given else None
        recipe = VideoRecipe([int(index) for index in given["indices"]], size, decoder)
    else:
        recipe = AudioRecipe(*given["range"], *given["form"], decoder=decoder)
    source = PATTERN[:12].tobytes()
    tenant = bytes.fromhex(RECIPES["tenant"])
    assert recipe.canonical().hex() == case["bytes"]
    assert recipe_key(mmhash.key(source), recipe).hex() == case["key"]
    assert recipe_key(mmhash.key(source, tenant=tenant), recipe).hex() == case["key_tenant"]


def build(item: dict[str, Any]) -> Any:
    if item["kind"] == "list":
        return [build(part) for part in item["items"]]
    data = PATTERN[: item["nbytes"]].copy()
    if item["kind"] == "bytes":
        return data.tobytes()
    if item["kind"] == "image":
        image = Image.frombytes(item["mode"], tuple(item["size"]), data.tobytes())
        if "palette_rgba" in item:
            image.putpalette(bytes.fromhex(item["palette_rgba"]), "RGBA")
        return image
    return build_tensor(item["dtype"], item["shape"], data)


def build_tensor(dtype: str, shape: list[int], data: np.ndarray[Any, Any]) -> Any:
    """As a numpy array where numpy or ml_dtypes has the dtype, else as a torch tensor."""
    if hasattr(ml_dtypes, dtype):
        return data.view(getattr(ml_dtypes, dtype)).reshape(shape)
    if dtype in np.sctypeDict:
        return data.view(dtype).reshape(shape)
    import torch

    return torch.from_numpy(data).view(getattr(torch, dtype)).reshape(shape)


def test_the_example_of_the_spec() -> None:
    text = (HERE.parents[1] / "docs" / "spec.md").read_text()
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    digest = mmhash.digest(array)
    assert f"| digest (`blake3`) | `{digest.hex()}` |" in text
    assert f"| key | `{mmhash.key(array).hex()}` |" in text
    options = '{"media_io_kwargs":{"video":{"fps":2.0,"num_frames":16}}}'
    assert f"`{options}`" in text
    for orientation, row in ((1, "with options"), (6, "with options and orientation")):
        named = vllm.ENGINE.name_item(
            mmhash.key(array), "0.29.0", options=options, orientation=orientation
        )
        assert f"| {row} | `{named.hex()}` |" in text
    recipe = VideoRecipe([0, 2, 4, 6, 7, 8, 20])
    assert f"| recipe | `{recipe.canonical().hex()}` |" in text
    source = mmhash.key(array.tobytes())
    assert f"| recipe key | `{recipe_key(source, recipe).hex()}` |" in text
    preimage = bytes.fromhex(text.split("| preimage | `")[1].split("`")[0])
    assert digest.bytes in preimage
    assert frame("tensor", "uint8", (3, 4), Digest("blake3", digest.bytes)) == mmhash.key(array)
