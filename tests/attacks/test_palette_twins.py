"""Two pictures of equal indices and other palettes, or of equal bytes in other modes.

The mode, the size, the whole palette and the transparency of each frame are in its key.
"""

from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

import mmhash
from tests.support.responses import items_of


def indexed(*palette: int, transparency: int | None = None) -> Image.Image:
    image = Image.new("P", (4, 4))
    image.putpalette(palette)
    if transparency is not None:
        image.info["transparency"] = transparency
    return image


def test_colours_count_and_not_only_their_numbers(server: Any) -> None:
    twins = [
        indexed(0, 0, 0, 255, 0, 0),
        indexed(255, 0, 0, 0, 0, 0),
        indexed(0, 0, 0, 0, 255, 0),
        indexed(0, 0, 0, 255, 0, 0, transparency=0),
        indexed(0, 0, 0, 255, 0, 0, transparency=1),
        Image.new("L", (4, 4)),
    ]
    assert len({twin.tobytes() for twin in twins}) == 1
    assert len({mmhash.key(twin).hex() for twin in twins}) == len(twins)
    keys = set()
    for twin in twins:
        body = BytesIO()
        twin.save(body, "PNG", transparency=twin.info.get("transparency"))
        keys.add(items_of(server.hash(body.getvalue(), "image/png", of="pixels"))[0]["key"])
    assert len(keys) == len(twins)


def test_modes_of_equal_bytes_are_two() -> None:
    content = bytes(range(48))
    modes = ["RGB", "YCbCr", "LAB", "HSV"]
    keys = {mmhash.key(Image.frombytes(mode, (4, 4), content)).hex() for mode in modes}
    assert len(keys) == len(modes)


def test_frames_are_not_run_together(tmp_path: Path) -> None:
    one = Image.new("L", (4, 8))
    frames = [Image.new("L", (4, 4)), Image.new("L", (4, 4), 1)]
    animated = tmp_path / "animated.tiff"
    frames[0].save(animated, save_all=True, append_images=frames[1:])
    one.paste(frames[1], (0, 4))
    assert mmhash.digest(frames[0].tobytes() + frames[1].tobytes()) == mmhash.digest(one.tobytes())
    assert mmhash.key_file(animated, of="pixels") != mmhash.key(one)
