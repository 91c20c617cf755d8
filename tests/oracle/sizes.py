"""Random sizes of items: extreme ratios, and sizes at the borders between two numbers of patches."""

import random
from typing import Any

LARGEST = 8192

# What a processor's steps are multiples of.
_STEPS = (14, 16, 28, 32, 56, 224, 336, 364, 384, 448, 512)

_COMMON = (
    (640, 480), (1024, 768), (1280, 720), (1920, 1080), (2560, 1440), (3840, 2160), (512, 512),
    (224, 224), (336, 336), (1, 1), (8192, 8192), (200, 1), (201, 1), (8192, 40), (8192, 41),
)  # fmt: skip


def image(source: random.Random) -> dict[str, Any]:
    """Return the size of an image."""
    width, height = _sides(source)
    if source.random() < 0.5:
        width, height = height, width
    return {"width": width, "height": height}


def video(source: random.Random) -> dict[str, Any]:
    """Return the size of a video, and the times of its frames."""
    frames = source.choice((1, 2, 3, 4, 5, 8, 9, 16, 31, 64))
    fps = source.choice((1.0, 2.0, 24.0, 29.97, 30.0, 0.5))
    indices = sorted(source.randrange(frames * 8) for _ in range(frames))
    return image(source) | {"frames": frames, "fps": fps, "indices": indices}


def audio(source: random.Random) -> dict[str, Any]:
    """Return the number of samples of a clip at 16 kHz."""
    longest = source.choice((400, 4_000, 80_000, 480_000, 960_000))
    return {"samples": source.choice((source.randint(1, longest), 160 * source.randint(1, 3000)))}


def _sides(source: random.Random) -> tuple[int, int]:
    kind = source.random()
    if kind < 0.25:
        return source.randint(1, LARGEST), source.randint(1, LARGEST)
    if kind < 0.5:
        return _by_magnitude(source), _by_magnitude(source)
    if kind < 0.7:
        return source.randint(1, 48), _by_magnitude(source)
    if kind < 0.95:
        return _near_a_step(source), _near_a_step(source)
    return source.choice(_COMMON)


def _by_magnitude(source: random.Random) -> int:
    return min(LARGEST, int(2 ** (source.random() * 13)))


def _near_a_step(source: random.Random) -> int:
    step = source.choice(_STEPS)
    half = step * source.randint(1, 2 * LARGEST // step) // 2
    return min(LARGEST, max(1, half + source.choice((-1, 0, 0, 1))))
