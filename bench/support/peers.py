"""Other implementations, run from the code that their projects publish; none of it is kept here."""

import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

SGLANG = "sglang==0.5.23"
_GPU_HASH = "sglang/kernels/ops/memory/gpu_tensor_hash.py"


def sglang_gpu_hash(path: Path | None) -> Callable[[Any], int]:
    """Return SGLang's gpu_tensor_hash, from a file or from its published wheel."""
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", SGLANG]
            subprocess.run([*pip, "--dest", folder], check=True)
            (wheel,) = Path(folder).glob("*.whl")
            path = Path(zipfile.ZipFile(wheel).extract(_GPU_HASH, folder))
        spec = importlib.util.spec_from_file_location("sglang_gpu_tensor_hash", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # Triton reads a kernel's source through it
        spec.loader.exec_module(module)
        function: Callable[[Any], int] = module.gpu_tensor_hash
        import torch  # noqa: PLC0415  (the source must still be there when Triton first reads it)

        function(torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"))
        return function
