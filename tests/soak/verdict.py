"""The verdict on a run: every request answered correctly, memory and descriptors flat."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tests.soak.load import Outcome

# Processes that were just started grow for a while: a shorter run tells nothing of a leak.
JUDGED_FROM_S = 300.0

_GROWTH, _ERRORS = 0.05, 3.0


class Trend(NamedTuple):
    """A line through samples, by least squares: where it is on average, how far it climbs."""

    level: float
    growth: float
    error: float

    def __str__(self) -> str:
        return f"{self.level:.1f}, growing by {self.growth:+.1f} ± {self.error:.1f}"

    @property
    def is_flat(self) -> bool:
        """True if it climbs by less than 5 % of its level, or by less than 3 standard errors."""
        return self.growth < max(_GROWTH * self.level, _ERRORS * self.error)


def trend(values: Sequence[float]) -> Trend:
    """The trend of samples that were taken at equal distances."""
    samples = np.asarray(values, float)
    at = np.linspace(-0.5, 0.5, len(samples))
    slope = float(at @ samples / (at @ at))
    left = samples - samples.mean() - slope * at
    error = float(np.sqrt(left @ left / (len(samples) - 2) / (at @ at)))
    return Trend(float(samples.mean()), slope, error)


def second_half(values: Sequence[float]) -> Trend:
    """The trend since the workers that are there at the end have grown to their size."""
    return trend(values[len(values) // 2 :])


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the wrong and the lost requests, and the kinds of requests without a correct response."""
    found = [
        f"{one.verdict}: {one.kind} of {one.service} {one.detail}"
        for one in outcomes
        if one.verdict in {"wrong", "lost"}
    ]
    right = Counter(one.kind for one in outcomes if one.verdict == "right")
    asked = {one.kind for one in outcomes}
    return found + [f"no answer at all to {kind}" for kind in sorted(asked) if not right[kind]]
