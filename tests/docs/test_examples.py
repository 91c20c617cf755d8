"""The examples run, and say what they are there to show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import mmhash
from mmhash.engines import vllm

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("vllm_uuids.py", vllm.uuid(mmhash.key(Image.new("RGB", (640, 480), "orange")))),
    ],
)
def test_example(name: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert shown in done.stdout


def test_the_gateway_says_which_variables_it_needs() -> None:
    environment = {"PATH": os.environ["PATH"], "WORKERS": "http://one:8000,tcp://one:5557"}
    done = subprocess.run(
        [sys.executable, "-m", "uvicorn", "examples.routing_gateway:app"],
        capture_output=True,
        text=True,
        check=False,
        cwd=EXAMPLES.parent,
        env=environment,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("set MMHASH, MODEL, BLOCK_SIZE:\nMMHASH=http://127.0.0.1:8780 ")
    assert done.stderr.endswith("    python -m uvicorn examples.routing_gateway:app\n")
