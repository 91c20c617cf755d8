"""C++ of the tests, compiled for the host with the kernels' headers: no GPU is needed."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import mmhash.cuda

HEADERS = Path(mmhash.cuda.__file__).parent


@pytest.fixture(scope="session")
def compile_for_host(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ctypes.CDLL]:
    """Compile a source of this folder to a library, and load it."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to compile the kernels' headers for the host")

    def compile_source(name: str, *options: str) -> ctypes.CDLL:
        source = Path(__file__).with_name(name)
        library = tmp_path_factory.mktemp("host") / f"{source.stem}.so"
        command = [compiler, "-std=c++17", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", *options]
        subprocess.run([*command, f"-I{HEADERS}", "-o", library, source], check=True)
        return ctypes.CDLL(str(library))

    return compile_source
