"""The published figures, and the traces' own next to them."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from bench.trace.distributions import quantile
from bench.trace.records import Request
from bench.trace.workload import AGENTS, REFERENCES, SERVEGEN, VISIONARENA, Workload

Trace = list[Request]

# An agent's request of the published size.
SCREENSHOTS = 33


class Figure(NamedTuple):
    """A published figure, and how to measure it on a trace."""

    workload: Workload
    name: str
    published: float
    tolerance: float  # relative, because the samples are finite
    measure: Callable[[Trace], float]


def _counts(trace: Trace) -> list[int]:
    return [len(one.images) for one in trace]


def _image_tokens(trace: Trace) -> list[int]:
    return [image.tokens for one in trace for image in one.images]


def _texts(trace: Trace) -> list[int]:
    return [one.new_text_tokens for one in trace]


def _outputs(trace: Trace) -> list[int]:
    return [one.output_tokens for one in trace]


def _load_of_top_clients(trace: Trace) -> float:
    by_load = Counter(one.client for one in trace).most_common(8)
    return 100 * sum(count for _, count in by_load) / len(trace)


def references(trace: Trace) -> int:
    """Return how many images all turns bring, repeated ones included."""
    return sum(len(one.new_images) for one in trace)


def distinct_images(trace: Trace) -> int:
    """Return how many different images a trace has."""
    return len({image.image for one in trace for image in one.images})


def _chats_per_image(trace: Trace) -> float:
    return len({one.session for one in trace}) / distinct_images(trace)


def _screenshots(trace: Trace) -> float:
    return max(_counts(trace))


def _repeated_screenshots(trace: Trace) -> float:
    """Return the fewest images that a request with 33 images shares with the turn before."""
    images = {(one.session, one.turn): {image.image for image in one.images} for one in trace}
    return min(
        len(images[one.session, one.turn - 1].intersection(image.image for image in one.images))
        for one in trace
        if len(one.images) == SCREENSHOTS
    )


FIGURES = (
    Figure(
        SERVEGEN, "requests with one image, %", 79.8, 0.02,
        lambda trace: 100 * _counts(trace).count(1) / len(trace),
    ),
    Figure(
        SERVEGEN, "images, mean", 1.59, 0.04, lambda trace: sum(_counts(trace)) / len(trace)
    ),
    Figure(SERVEGEN, "images, p95", 4, 0.0, lambda trace: quantile(_counts(trace), 0.95)),
    Figure(SERVEGEN, "images, p99", 9, 0.12, lambda trace: quantile(_counts(trace), 0.99)),
    Figure(SERVEGEN, "image tokens, p50", 540, 0.08, lambda t: quantile(_image_tokens(t), 0.5)),
    Figure(SERVEGEN, "image tokens, p75", 1196, 0.03, lambda t: quantile(_image_tokens(t), 0.75)),
    Figure(SERVEGEN, "image tokens, p99", 1271, 0.02, lambda t: quantile(_image_tokens(t), 0.99)),
    Figure(SERVEGEN, "text tokens, p50", 106, 0.08, lambda t: quantile(_texts(t), 0.5)),
    Figure(SERVEGEN, "text tokens, p95", 2346, 0.12, lambda t: quantile(_texts(t), 0.95)),
    Figure(SERVEGEN, "output tokens, p50", 100, 0.05, lambda t: quantile(_outputs(t), 0.5)),
    Figure(SERVEGEN, "output tokens, p95", 336, 0.08, lambda t: quantile(_outputs(t), 0.95)),
    Figure(SERVEGEN, "clients", 35, 0.0, lambda trace: len({one.client for one in trace})),
    Figure(SERVEGEN, "load of the top 8 clients, %", 74, 0.01, _load_of_top_clients),
    Figure(VISIONARENA, "chats per image", 4.7, 0.02, _chats_per_image),
    Figure(REFERENCES, "requests", 100, 0.0, len),
    Figure(REFERENCES, "references", 207, 0.03, references),
    Figure(REFERENCES, "images", 42, 0.03, distinct_images),
    Figure(AGENTS, "screenshots of the last request", SCREENSHOTS, 0.0, _screenshots),
    Figure(AGENTS, "of them repeated", 31, 0.0, _repeated_screenshots),
)  # fmt: skip

SOURCES = {
    SERVEGEN.name: "ServeGen, image workloads",
    VISIONARENA.name: "VisionArena",
    REFERENCES.name: "llm-d-router #901",
    AGENTS.name: "agents with screenshots",
}
