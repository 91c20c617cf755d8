"""Runs other implementations from the code that their projects publish. None is kept here."""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

SGLANG = "sglang==0.5.23"
_FILES = (
    "sglang/kernels/ops/memory/gpu_tensor_hash.py",
    "sglang/srt/environ.py",
    "sglang/srt/multimodal/transport/cuda_ipc.py",
    "sglang/srt/multimodal/transport/memory_pool.py",
)


def sglang_gpu_hash(wheel: Path | None) -> Callable[[Any], int]:
    """Return SGLang's gpu_tensor_hash, from a wheel or from the package registry."""
    _extract(wheel)
    import torch  # noqa: PLC0415  (also on machines without it)

    function: Callable[[Any], int]
    function = import_module("sglang.kernels.ops.memory.gpu_tensor_hash").gpu_tensor_hash
    function(torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"))
    return function


def sglang_ipc(wheel: Path | None) -> ModuleType:
    """Return SGLang's pool of features behind CUDA IPC handles, for one consumer."""
    _extract(wheel)
    # The pool needs only these parts of the engine. With one consumer, it asks for no rank.
    members: dict[str, dict[str, Any]] = {
        "sglang.srt.runtime_context": {"get_parallel": None},
        "sglang.srt.utils": {},
        "sglang.srt.utils.cuda_vmm_utils": {"check_drv": _check},
    }
    for name, functions in members.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(functions)
    return import_module("sglang.srt.multimodal.transport.cuda_ipc")


@cache
def _extract(wheel: Path | None) -> None:
    """Make files of SGLang importable. Without `__init__.py`, they load nothing else of SGLang."""
    folder = tempfile.mkdtemp(prefix="sglang-")
    if wheel is None:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", SGLANG]
        subprocess.run([*pip, "--dest", folder], check=True)
        (wheel,) = Path(folder).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, _FILES)
    sys.path.insert(0, folder)


def _check(result: tuple[Any, ...], label: str) -> None:
    if int(result[0]) != 0:
        raise RuntimeError(f"{label}: {result[0]}")
