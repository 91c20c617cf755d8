"""The programs of the shorter pages run as they are, after the names that they assume."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.transport import SharedPool, SharedTensor

ROOT = Path(__file__).parents[2]


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def commands(page: str) -> list[str]:
    return re.findall(r"^\$ (.*)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)


def run_async(program: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a program that awaits, and return its variables."""
    body = textwrap.indent(program, "    ")
    exec(f"async def main():\n{body}\n    return locals()", names)
    found: dict[str, Any] = asyncio.run(names["main"]())
    return found


def test_engines() -> None:
    key = mmhash.key(b"image")
    pads = mmhash.engines.sglang.pad_values(key, version="0.5.22")
    names = {
        "key": key, "keys": [key], "ids": [1, 2, *pads[:1] * 4, 3] * 16,
        "uuid": mmhash.engines.vllm.uuid(key), "offset": 2, "length": 4,
    }  # fmt: skip
    for program in programs("engines.md"):
        exec(program, names)


def test_executor() -> None:
    first, _ = programs("transport.md")
    found = run_async(first, {"AsyncHasher": mmhash.AsyncHasher, "pixels": b"p", "audio": b"a"})
    assert found["keys"] == mmhash.keys([b"p", b"a"])


def test_transport_through_shared_memory() -> None:
    """The left of the page's two columns; the right one needs a GPU."""
    *_, program = programs("transport.md")
    here = "\n".join(line.split("   ")[0] for line in program.splitlines())
    sent: list[dict[str, Any]] = []
    patches = np.arange(24, dtype=np.float32).reshape(6, 4)
    producer, consumer = here.replace('"cuda"', '"cpu"').split("# the consumer")
    names = {"SharedPool": SharedPool, "patches": patches, "send": sent.append}
    exec(producer, names)
    taken = {"SharedTensor": SharedTensor, "mmhash": mmhash, "handle": sent[0], "grids": [(1, 6)]}
    exec(consumer, taken)
    assert taken["keys"] == [mmhash.key(patches)]
    assert np.array_equal(taken["tensor"], patches)  # type: ignore[arg-type]


@pytest.mark.gpu
def test_cuda() -> None:
    import torch

    features = torch.arange(24, dtype=torch.float32, device="cuda").reshape(6, 4)
    names: dict[str, Any] = {"mmhash": mmhash, "features": features, "grids": [(1, 2), (1, 4)]}
    program, *_ = programs("cuda.md")
    exec(program, names)
    assert names["keys"] == mmhash.keys([features[:2].cpu(), features[2:].cpu()])


@pytest.mark.slow
def test_bulk(tmp_path: Path) -> None:
    """Each of the commands, with a folder of this machine for one of the reader's."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    data = tmp_path / "data"
    data.mkdir()
    (data / "one.jpg").write_bytes(b"1")
    pq.write_table(pa.table({"data": [b"1", b"2"]}), tmp_path / "images.parquet")
    (tmp_path / "mmhash").symlink_to(Path(sys.executable).with_name("mmhash"))
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    counts = []
    for command in commands("bulk.md"):
        done = subprocess.run(
            ["bash", "-c", command.replace("/data", str(data)).replace("examples", "examples/")],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in {0, 1}, done.stderr  # 1: not all of our examples are images
        counts.append(done.stdout)
        shutil.rmtree(tmp_path / "keys")
    files = list((ROOT / "examples").iterdir())
    images = sum(path.suffix == ".png" for path in files)
    skipped = f"{len(files) - images} other files skipped: not images"
    assert images == 1
    assert counts == [
        f"keys: 1 item, {skipped}\n",
        "keys: 1 item\n",
        "keys: 2 items\n",
    ]
