"""`python -m tests.packaging.try_wheel WHEEL`: inspect a wheel, and run it in an empty environment."""

import json
import subprocess
import sys
import tempfile
import urllib.request
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.service import serving

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ["--constraint", str(ROOT / "constraints.txt")]

# What the README shows: the key of three bytes.
KEY_OF_ABC = "0f3e80300d68299e5b82028b5a8d7ba80df85ea3c212e44e298bc6ae728bac59"


def inspect(wheel: Path) -> None:
    """Assert that the wheel has the packages with their types and kernels, and nothing else."""
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"mmhash", "mmhash_service"}, top
    for name in ("mmhash/py.typed", "mmhash_service/py.typed", "mmhash_service/page/index.html"):
        assert name in names, name
    kernels = {path.name for path in (ROOT / "mmhash" / "cuda").glob("*.cu*")}
    packed = {
        name.removeprefix("mmhash/cuda/") for name in names if name.startswith("mmhash/cuda/")
    }
    assert kernels <= packed, kernels - packed


def install(requirement: str, folder: Path, options: Sequence[str] = ()) -> Path:
    """Install a requirement into a new environment, and return the environment's bin."""
    venv.create(folder)
    binaries = folder / "bin"
    install = ("install", "--quiet", "--no-compile", *CONSTRAINTS, *options, requirement)
    subprocess.run([*pip_of(binaries), *install], check=True)
    return binaries


def pip_of(binaries: Path) -> list[str]:
    """Return the command by which this environment's pip works on another one."""
    return [sys.executable, "-m", "pip", "--python", str(binaries / "python")]


def try_out(binaries: Path) -> None:
    """Run the command, compute a key, and send a request to the service."""
    command = str(binaries / "mmhash")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([command, "--version"], check=True, cwd=folder)
        program = "import mmhash; print(mmhash.key(b'abc').hex())"
        python = [str(binaries / "python"), "-c", program]
        assert subprocess.check_output(python, cwd=folder, text=True).strip() == KEY_OF_ABC
    with serving(program=[command, "serve", "--port", "0"]) as service:
        request = urllib.request.Request(
            f"{service.url}/hash",
            data=b"abc",
            headers={"Content-Type": "application/octet-stream"},
        )
        with urllib.request.urlopen(request) as response:
            (item,) = json.load(response)["items"]
    assert item["key"] == KEY_OF_ABC


def main(wheel: Path) -> None:
    """Inspect it, install it with the service extra, and try it out."""
    inspect(wheel)
    with tempfile.TemporaryDirectory() as folder:
        try_out(install(f"{wheel.resolve()}[service]", Path(folder) / "venv"))
    print(f"{wheel.name}: good")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
