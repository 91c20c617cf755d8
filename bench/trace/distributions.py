"""Distributions fitted to published quantiles.

They draw from `random.Random`, whose sequences do not change between releases of Python.
"""

import math
from bisect import bisect
from itertools import accumulate
from random import Random

from bench.trace.records import TOKEN_SIDE

# ServeGen: 79.8 % of the requests have one image, the mean is 1.59, p95 4 and p99 9. The weights
# between these points are free: they fall, and give the mean.
_IMAGE_COUNTS = {
    1: 0.798, 2: 0.078, 3: 0.044, 4: 0.036, 5: 0.010, 6: 0.007, 7: 0.006, 8: 0.006,
    9: 0.007, 10: 0.003, 16: 0.005,
}  # fmt: skip
_COUNTS = list(_IMAGE_COUNTS)
_CUMULATIVE = list(accumulate(_IMAGE_COUNTS.values()))

# ServeGen: p50 540, p75 1196, p99 1271. The ends are free.
_IMAGE_TOKENS = ((0.0, 64), (0.5, 540), (0.75, 1196), (0.99, 1271), (1.0, 1280))

_Z95 = 1.6449  # the standard normal distribution's p95
_TEXT = math.log(106), math.log(2346 / 106) / _Z95
_OUTPUT = math.log(100), math.log(336 / 100) / _Z95
MOST_TEXT = 16_384
MOST_OUTPUT = 4_096

_ASPECTS = (1.0, 4 / 3, 3 / 4, 16 / 9, 9 / 16)


def image_count(draw: Random) -> int:
    """Draw how many images a request has."""
    index = bisect(_CUMULATIVE, draw.random() * _CUMULATIVE[-1])
    return _COUNTS[min(index, len(_COUNTS) - 1)]


def image_size(draw: Random) -> tuple[int, int]:
    """Draw the width and height of an image, in pixels."""
    at = draw.random()
    upper = next(index for index, (part, _) in enumerate(_IMAGE_TOKENS) if part > at)
    (low, fewest), (high, most) = _IMAGE_TOKENS[upper - 1 : upper + 1]
    tokens = fewest + (most - fewest) * (at - low) / (high - low)
    return size_of(tokens, draw.choice(_ASPECTS))


def size_of(tokens: float, aspect: float) -> tuple[int, int]:
    """Return the width and height of an image of about that many tokens."""
    columns = max(1, round(math.sqrt(tokens * aspect)))
    rows = max(1, round(tokens / columns))
    return columns * TOKEN_SIDE, rows * TOKEN_SIDE


def text_tokens(draw: Random) -> int:
    """Draw the text tokens of a message: log-normal, p50 106 and p95 2346 as in ServeGen."""
    return min(MOST_TEXT, max(1, round(draw.lognormvariate(*_TEXT))))


def output_tokens(draw: Random) -> int:
    """Draw the tokens of a reply: log-normal, p50 100 and p95 336 as in ServeGen."""
    return min(MOST_OUTPUT, max(1, round(draw.lognormvariate(*_OUTPUT))))


def client_weights(clients: int, top: int, share: float) -> list[float]:
    """Divide the load among clients by Zipf's law. The top clients get this share together."""
    low, high = 0.0, 10.0
    for _ in range(60):
        exponent = (low + high) / 2
        weights = [rank**-exponent for rank in range(1, clients + 1)]
        if sum(weights[:top]) / sum(weights) < share:
            low = exponent
        else:
            high = exponent
    return [weight / sum(weights) for weight in weights]


def apportion(total: int, weights: list[float]) -> list[int]:
    """Divide a total by weights into whole numbers. The largest remainders are rounded up."""
    exact = [total * weight for weight in weights]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: counts[index] - exact[index])
    for index in by_remainder[: total - sum(counts)]:
        counts[index] += 1
    return counts


def quantile(values: list[int], part: float) -> int:
    """Return the smallest value such that at least this share of all values is not larger."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(part * len(ordered)) - 1))]
