"""The programs of docs/client.md run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs(server_url: str, tmp_path: Path, program: str) -> None:
    Image.new("RGB", (64, 48), "navy").save(tmp_path / "photo.png")
    here = program.replace("http://127.0.0.1:8780", server_url)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", here],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)
    assert re.search(r"[0-9a-f]{64}", done.stdout)
