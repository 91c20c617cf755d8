"""`mmhash env`: describes the environment for a bug report, even if parts of it are broken."""

import platform
from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated

import typer

from mmhash import __version__
from mmhash.cli.report import say
from mmhash.cpu import cpu_count
from mmhash.cuda import why_unavailable
from mmhash.framing import SPEC_VERSION
from mmhash.io.names import reason
from mmhash.transport.segments import remove_orphans

PACKAGES = (
    "numpy",
    "blake3",
    "xxhash",
    "torch",
    "pillow",
    "safetensors",
    "typer",
    "rich",
    "fastapi",
    "pydantic",
    "uvicorn",
    "uvloop",
    "httptools",
)


def print_env(
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="Remove the shared memory of exited processes instead."),
    ] = False,
) -> None:
    """Print versions, cores and GPUs, one per line."""
    if sweep:
        for name in remove_orphans():
            say(f"removed {name}")
        return
    for name, value in _facts():
        say(f"{name + ':':<12} {value}")


def _facts() -> Iterator[tuple[str, str]]:
    yield "mmhash", __version__
    yield "spec", str(SPEC_VERSION)
    yield "python", platform.python_version()
    yield "platform", platform.platform()
    for package in PACKAGES:
        yield package, _version_of(package)
    yield "cpu cores", str(cpu_count())
    yield from _gpus()  # last, because the check is slow and a broken driver may crash the process


def _version_of(package: str) -> str:
    try:
        return version(package)
    except ModuleNotFoundError:
        return "not installed"
    except Exception as error:  # noqa: BLE001  (damaged metadata is reported, too)
        return f"unknown ({reason(error)})"


def _gpus() -> Iterator[tuple[str, str]]:
    try:
        import torch  # noqa: PLC0415  (may not be installed)

        torch.cuda.current_device()  # raises an error with the reason if there is no usable device
        devices = [
            torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())
        ]
    except Exception as error:  # noqa: BLE001  (the reason is printed)
        yield "gpus", f"none ({reason(error)})"
        return
    for index, device in enumerate(devices):
        name = f"{device.name}, {device.total_memory / 2**30:.1f} GiB"
        yield f"gpu {index}", f"{name}, {why_unavailable(index) or 'hashes its own tensors'}"
