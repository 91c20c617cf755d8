"""The virtual environment of the oracle, built once and kept outside the tree."""

import os
import subprocess
import sys
import sysconfig
from fcntl import LOCK_EX, flock
from pathlib import Path
from shutil import rmtree

from tests.support.vision_operators import declare_vision_operators

CACHE = Path(
    os.environ.get("MMHASH_ORACLE_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmhash-oracle"
)
PATH = CACHE / "transformers"
PYTHON = str(PATH / "bin" / "python")

# The CPU build of torch; a range would bring the CUDA build, of several GB.
PACKAGES = ("torch==2.13.0", "transformers==5.23.0", "pillow", "jinja2", "sentencepiece")

# Its own requirements would bring another build of torch.
TORCHVISION = "torchvision==0.28.0"


def build() -> None:
    """Build the environment, unless it is there already with these packages."""
    CACHE.mkdir(parents=True, exist_ok=True)
    done = PATH / "built"
    recipe = "\n".join((*PACKAGES, TORCHVISION))
    with (CACHE / "transformers.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if done.exists() and done.read_text() == recipe:
            return
        rmtree(PATH, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(PATH))
        _run(PYTHON, "-m", "pip", "install", "--quiet", *PACKAGES)
        _run(PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", TORCHVISION)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(PATH)}))
        declare_vision_operators(packages)
        done.write_text(recipe)


def _run(*command: str) -> None:
    # The project's own constraints are for the project's own environment.
    variables = {k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"}
    subprocess.run(command, check=True, env=variables)
