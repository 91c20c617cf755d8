"""The images of the load, as files."""

import random
from io import BytesIO
from pathlib import Path

from PIL import Image

IMAGES = 300
_SIDE = 48


def write_images(folder: Path) -> list[bytes]:
    """Write the images that the load refers to by URL; return all files."""
    files = []
    for number in range(IMAGES):
        colours = random.Random(number).randbytes(_SIDE * _SIDE * 3)
        file = BytesIO()
        Image.frombytes("RGB", (_SIDE, _SIDE), colours).save(file, "PNG")
        (folder / f"{number}.png").write_bytes(file.getvalue())
        files.append(file.getvalue())
    return files
