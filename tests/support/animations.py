"""Pictures of several frames, in the formats that have them."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

SIZE = (16, 12)
FORMATS = ["GIF", "PNG", "WEBP", "AVIF", "TIFF", "MPO"]


def noise(seed: int) -> Image.Image:
    """Return a frame; another seed has other pixels."""
    values = np.random.default_rng(seed).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
    return Image.fromarray(values)


def animation(kind: str, count: int = 3, **options: Any) -> bytes:
    """Encode frames of noise; a format that this Pillow does not write skips the test."""
    frames = [noise(number) for number in range(count)]
    file = io.BytesIO()
    try:
        frames[0].save(file, kind, save_all=True, append_images=frames[1:], **options)
    except (KeyError, OSError):
        pytest.skip(f"Pillow does not write {kind} here")
    return file.getvalue()


def opened(data: bytes) -> Any:
    """Return the file, opened."""
    return Image.open(io.BytesIO(data))
