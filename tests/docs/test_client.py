"""The programs, tables and sizes of docs/client.md are true."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import mmhash
from mmhash.client import AsyncClient, Item
from mmhash.client.hashing import BATCH_ITEM_MAX, SHM_MIN_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=["Client", "AsyncClient"])
def test_the_programs_run(server_url: str, tmp_path: Path, program: str) -> None:
    Image.new("RGB", (64, 48), "navy").save(tmp_path / "photo.png")
    here = program.replace("http://127.0.0.1:8780", server_url)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", here],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)
    assert re.search(r"[0-9a-f]{64}", done.stdout)


def test_the_table_has_every_call_with_its_parameters() -> None:
    shown = dict(re.findall(r"`(\w+)\(([^)]*)\)`", PAGE))
    calls = {name for name in vars(mmhash.Client) if not name.startswith("_")} - {"close"}
    for name in calls:
        _, *taken = inspect.signature(getattr(mmhash.Client, name)).parameters.values()
        texts = [
            f"{p.name}=" if p.default is not p.empty or p.kind is p.KEYWORD_ONLY else p.name
            for p in taken
        ]
        assert shown[name] == ", ".join(texts), name
    assert calls <= shown.keys()
    own = [f"{name}=" for name in inspect.signature(AsyncClient).parameters if name != "base_url"]
    assert shown["Client"] == ", ".join(["base_url", *own])
    for field in Item.__dataclass_fields__:
        assert f"`{field}`" in PAGE


def test_the_sizes_are_those_of_the_code() -> None:
    assert f"**From {SHM_MIN_BYTES >> 20} MiB on**" in PAGE
    assert f"up to {BATCH_ITEM_MAX >> 10} KiB share" in PAGE
