"""Several threads that hash one PIL image: wrong keys, or a crash of the interpreter.

One thread at a time reads an image, and never through the caller's decoder.
"""

import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from PIL import Image

import mmhash
from mmhash import pil_image
from tests.support.animations import FORMATS, animation, noise, opened

THREADS = 6


def hash_together(image: Any, rounds: int = 3) -> set[mmhash.Digest]:
    barrier = Barrier(THREADS)

    def hash_often(_: int) -> list[mmhash.Digest]:
        barrier.wait()
        return [mmhash.key(image) for _ in range(rounds)]

    with ThreadPoolExecutor(THREADS) as pool:
        return {key for found in pool.map(hash_often, range(THREADS)) for key in found}


@pytest.mark.parametrize("state", ["lazy", "loaded", "sought"])
@pytest.mark.parametrize("kind", FORMATS)
def test_an_animation(kind: str, state: str) -> None:
    data = animation(kind)
    for _ in range(3):
        image = opened(data)
        if state == "sought":
            image.seek(1)
        if state != "lazy":
            image.load()
        assert hash_together(image) == {mmhash.key(opened(data))}


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF", "JPEG", "BMP"])
def test_a_lazily_opened_image(kind: str) -> None:
    file = io.BytesIO()
    noise(3).resize((200, 150)).save(file, kind)
    for _ in range(5):
        assert hash_together(opened(file.getvalue()), 1) == {mmhash.key(opened(file.getvalue()))}


def test_a_palette_that_is_set_late() -> None:
    """load() hands a new palette to the pixels: once, and not in two threads."""
    for _ in range(20):
        image = noise(2).convert("L")
        image.putpalette(bytes(range(256)) * 3)
        assert image.palette is not None
        expected = mmhash.key(image.copy())
        image.palette.dirty = 1
        assert hash_together(image, 1) == {expected}


def test_images_that_share_a_file_object() -> None:
    data = animation("TIFF")
    file = io.BytesIO(data)
    images = [Image.open(file) for _ in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        assert set(pool.map(mmhash.key, images * 5)) == {mmhash.key(opened(data))}


SCRIPT = """
import io, sys
from concurrent.futures import ThreadPoolExecutor
from PIL import Image
import mmhash
data = sys.stdin.buffer.read()
expected = mmhash.key(Image.open(io.BytesIO(data)))
for _ in range(30):
    image = Image.open(io.BytesIO(data))
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(mmhash.key, [image] * 8)) == {expected}
"""


@pytest.mark.parametrize("disposal", [0, 2, 3])
def test_a_gif_does_not_crash_the_interpreter(disposal: int) -> None:
    data = animation("GIF", count=5, disposal=disposal)
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=data, check=False)
    assert done.returncode == 0


def test_locks_are_kept_only_while_they_are_held() -> None:
    hash_together(opened(animation("GIF")))
    assert len(pil_image._locks._locks) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_lock_that_another_thread_held_does_not_stop_a_forked_child() -> None:
    image = opened(animation("GIF"))
    expected = mmhash.key(image)
    with ThreadPoolExecutor(1) as pool:
        held, release = Barrier(2), Barrier(2)

        def hold() -> None:
            with pil_image._locks.of(image):
                held.wait()
                release.wait()

        pool.submit(hold)
        held.wait()
        child = os.fork()
        if child == 0:
            os._exit(0 if mmhash.key(image) == expected else 1)
        release.wait()
    assert os.waitpid(child, 0)[1] == 0
