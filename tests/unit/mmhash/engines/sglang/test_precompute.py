"""precompute() on the engine's own item, as its released wheel defines it."""

import ast
import asyncio
import copy
import enum
import hashlib
import subprocess
import sys
import typing
import zipfile
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

import mmhash
from mmhash.engines import sglang
from mmhash.executor import AsyncHasher

pytestmark = pytest.mark.slow

RELEASE = "0.5.23"
SOURCES = ("sglang/srt/multimodal/modality.py", "sglang/srt/managers/schedule_batch.py")
FEATURE = torch.arange(600_000, dtype=torch.float32).reshape(600, 1000)


@pytest.fixture(scope="module")
def engine_item(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The engine's `MultimodalDataItem`, alone: its package needs a GPU machine's."""
    folder = tmp_path_factory.mktemp("sglang")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    command = ["download", "--no-deps", "--dest", str(folder), f"sglang=={RELEASE}"]
    done = subprocess.run([*pip, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot get it: {done.stderr.strip().splitlines()[-1]}")
    (wheel,) = folder.glob("sglang-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        source = "\n".join(archive.read(name).decode() for name in SOURCES)
    return _only(source, "MultimodalDataItem")


def _only(source: str, name: str) -> Any:
    """A class of a module, run with the constants and functions that it uses, and nothing else."""
    wanted = {
        name,
        "Modality",
        "MultimodalInputFormat",
        "_compute_pad_values",
        "MultimodalDataValue",
    }

    def is_wanted(node: ast.stmt) -> bool:
        match node:
            case ast.ClassDef(name=defined) | ast.FunctionDef(name=defined):
                return defined in wanted
            case ast.Assign(targets=[ast.Name(id=defined)]):
                return defined.startswith(("_MM_", "MM_PAD"))
            case ast.AnnAssign(target=ast.Name(id=defined)):
                return defined in wanted
        return False

    # Joined sources may not have their own `from __future__ import annotations` in the middle.
    module = ast.parse(source.replace("from __future__ import annotations", ""))
    module.body = [node for node in module.body if is_wanted(node)]
    namespace: dict[str, Any] = {
        **{each: getattr(typing, each) for each in typing.__all__},
        "__name__": "sglang_item", "msgspec": msgspec, "hashlib": hashlib, "Enum": enum.Enum, "auto": enum.auto,
        "CudaIpcTensorTransportProxy": type("CudaIpcTensorTransportProxy", (), {}),
    }  # fmt: skip
    alone = type(sys)("sglang_item")
    alone.__dict__.update(namespace)
    sys.modules["sglang_item"] = alone  # msgspec looks annotations up there
    exec(compile(module, name, "exec"), alone.__dict__)
    return alone.__dict__[name]


@dataclass
class OlderItem:
    """An item as releases before 0.5.10 have it: without set_hash."""

    feature: Any = None
    precomputed_embeddings: Any = None
    hash: int | None = None
    pad_value: int | None = None
    offsets: list[tuple[int, int]] = field(default_factory=list)
    model_specific_data: dict[str, Any] = field(default_factory=dict)


def precompute(items: list[Any], **options: Any) -> None:
    async def main() -> None:
        async with AsyncHasher() as one:
            await sglang.precompute(items, one, **options)
            assert one.stats()[:4] == (0, 0, 0, 0)

    asyncio.run(main())


def image(engine_item: Any, **fields: Any) -> Any:
    modality = sys.modules["sglang_item"].Modality.IMAGE
    return engine_item(modality=modality, offsets=[(3, 9)], **fields)


@pytest.mark.parametrize("where", ["feature", "precomputed_embeddings"])
@pytest.mark.parametrize(
    "content", [FEATURE, FEATURE.numpy(), [FEATURE, FEATURE[:7]], FEATURE.bfloat16().T]
)
def test_the_engines_own_item(engine_item: Any, where: str, content: Any) -> None:
    item = image(
        engine_item, **{where: content}, model_specific_data={"image_grid_thw": [[1, 2, 3]]}
    )
    precompute([item])
    key = mmhash.key(content)
    assert item.hash == key.u64 == int(sglang.mm_hash(key), 16)
    assert list(item.padding_values()) == sglang.pad_values(key)
    assert item.pad_value == sglang.pad_values(key)[0]
    assert item.padding_sequence(7) == sglang.padding(key, 7)
    assert item.model_specific_data == {"image_grid_thw": [[1, 2, 3]]}
    assert getattr(item, where) is content
    item.set_pad_value()  # has nothing left to do: it would import the engine
    before = copy.copy(item)
    precompute([item])
    assert item == before


def test_the_engines_item_that_has_a_hash(engine_item: Any) -> None:
    item = image(engine_item, feature=FEATURE, hash=5)
    precompute([item])
    assert item.hash == 5
    assert list(item.pad_values) == sglang.pad_values(5)


def test_who_has_all_is_left_alone() -> None:
    item = OlderItem(feature=FEATURE, hash=5, pad_value=77)
    precompute([item])
    assert (item.hash, item.pad_value) == (5, 77)


class Handle:
    """The engine's handle of memory elsewhere, which it opens itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.fail(f"touched: {name}")


def test_the_engines_handles_are_left_alone() -> None:
    items = [
        OlderItem(feature=Handle()),
        OlderItem(feature=[FEATURE, Handle()]),
        OlderItem(feature=[]),
        OlderItem(),
    ]
    precompute(items)
    assert {(item.hash, item.pad_value) for item in items} == {(None, None)}
    known = OlderItem(feature=Handle(), hash=9)
    precompute([known])
    assert known.pad_value == sglang.pad_values(9)[0]


@pytest.mark.parametrize("version", ["0.4.9", "0.5.9", "0.5.22", "0.5.23"])
def test_an_item_without_set_hash(version: str) -> None:
    item = OlderItem(feature=np.ones(9))
    precompute([item], version=version)
    pads = sglang.pad_values(mmhash.key(np.ones(9)), version=version)
    assert item.pad_value == pads[0]
    assert getattr(item, "pad_values", tuple(pads)) == tuple(pads)


def test_what_has_no_key_is_left_to_the_engine() -> None:
    items = [OlderItem(feature=np.array([None])), OlderItem(feature=FEATURE)]
    precompute(items)
    assert items[0].hash is None
    assert items[1].hash == mmhash.key(FEATURE).u64


def test_tenants() -> None:
    item = OlderItem(feature=FEATURE)
    precompute([item], tenant=bytes(32))
    assert item.hash == mmhash.key(FEATURE, tenant=bytes(32)).u64


def test_a_closed_hasher_is_an_error() -> None:
    async def main() -> None:
        one = AsyncHasher()
        await one.close()
        with pytest.raises(mmhash.MMHashError, match="closed"):
            await sglang.precompute([OlderItem(feature=FEATURE)], one)

    asyncio.run(main())
