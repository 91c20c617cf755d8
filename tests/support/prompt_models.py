"""Model directories for plans: tiny tokenizers and the settings of real processors."""

from pathlib import Path

from tests.live import models


def write_qwen2_vl(folder: Path) -> Path:
    """Write the tiny Qwen2-VL of the live tests, which engines can load too."""
    return write("qwen2_vl", folder)


def write(name: str, folder: Path) -> Path:
    """Write a tiny model of the live tests."""
    models.write(name, folder)
    return folder
