"""What Prometheus reads: base units, and no label that a client can choose."""

import os
from collections.abc import Iterable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

MULTIPROC_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

REGISTRY = CollectorRegistry()

REQUESTS = Counter("mmhash_requests", "Calls answered.", ("call", "status"), registry=REGISTRY)
SECONDS = Histogram(
    "mmhash_request_duration_seconds",
    "From the head of a call to the end of its answer.",
    ("call",),
    registry=REGISTRY,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
BODY_BYTES = Counter("mmhash_body_bytes", "Bytes of bodies received.", registry=REGISTRY)
ITEMS = Counter("mmhash_items", "Items hashed.", ("kind",), registry=REGISTRY)
PROBLEMS = Counter("mmhash_problems", "Calls that failed.", ("problem",), registry=REGISTRY)
CALLS = Gauge(
    "mmhash_calls_in_progress",
    "Calls with a body that are being answered.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
HELD_BYTES = Gauge(
    "mmhash_held_bytes",
    "Bytes of bodies that are held.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
FETCHES = Counter(
    "mmhash_fetches",
    "URLs that were asked: fetched, unchanged, abandoned, or the problem.",
    ("result",),
    registry=REGISTRY,
)
FETCHED_BYTES = Counter("mmhash_fetched_bytes", "Bytes that URLs gave.", registry=REGISTRY)
MEMO_LOOKUPS = Counter(
    "mmhash_memo_lookups",
    "Entries of the memo that were asked for, and where they came from.",
    ("kind", "source"),
    registry=REGISTRY,
)
MEMO_FAILURES = Counter(
    "mmhash_memo_failures",
    "Operations of the memo's store that failed or took too long.",
    ("operation",),
    registry=REGISTRY,
)
MEMO_BYTES = Gauge(
    "mmhash_memo_bytes",
    "Bytes of the memo that are held in memory.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)


class _Workers(MultiProcessCollector):
    """The metrics of all workers; a file that one of them has only just made has none yet."""

    def collect(self) -> Iterable[Metric]:
        """Read the files that have been begun: an empty one is an error to the package."""
        with os.scandir(os.environ[MULTIPROC_VARIABLE]) as entries:
            files = [entry.path for entry in entries if entry.name.endswith(".db") and _size(entry)]
        found: Iterable[Metric] = self.merge(files, accumulate=True)  # type: ignore[no-untyped-call]
        return found


def _size(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:  # of a worker that has died meanwhile
        return 0


def exposition() -> tuple[bytes, str]:
    """All metrics as text, those of all workers together, and the text's Content-Type."""
    registry = REGISTRY
    if MULTIPROC_VARIABLE in os.environ:
        registry = CollectorRegistry()
        _Workers(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry), CONTENT_TYPE_LATEST
