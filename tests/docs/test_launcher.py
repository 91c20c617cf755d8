"""The documented launcher of SGLang exits where the engine would serve without the guard."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guard.md"
SETTINGS = {"MMHASH_GUARD_ENGINE": "sglang", "MMHASH_GUARD_SECRETS": f'["{"5a" * 32}"]'}

# As much of SGLang as the launcher imports.
STAND_INS = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/server_args.py": "def prepare_server_args(arguments):\n    return arguments\n",
    "sglang/srt/entrypoints/__init__.py": "",
    "sglang/srt/entrypoints/http_server.py": (
        "from fastapi import FastAPI\n"
        "app = FastAPI()\n"
        "def launch_server(arguments):\n"
        "    print('launched with', [one.cls.__name__ for one in app.user_middleware])\n"
    ),
}


def launch(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    for name, text in STAND_INS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (source,) = re.findall(r"```python\n(import sys\n.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "launcher.py").write_text(source)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(folder / "launcher.py")],
        env={**os.environ, **SETTINGS, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_launcher_guards_the_server_in_python(tmp_path: Path) -> None:
    done = launch(tmp_path, SGLANG_RUST_SERVER="0")
    assert done.stdout == "launched with ['Guard']\n", done.stderr


@pytest.mark.slow
def test_the_launcher_ends_before_the_server_in_rust(tmp_path: Path) -> None:
    done = launch(tmp_path, SGLANG_RUST_SERVER="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "SGLANG_RUST_SERVER" in done.stderr
