"""An example prints the names of vLLM; test_routing_example.py runs the other one."""

import subprocess
import sys
from pathlib import Path

from PIL import Image

import mmhash
from mmhash.engines import vllm

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_uuids_of_vllm() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "vllm_uuids.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert vllm.uuid(mmhash.key(Image.new("RGB", (640, 480), "orange"))) in done.stdout
