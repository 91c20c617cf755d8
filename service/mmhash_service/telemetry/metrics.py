"""Prometheus metrics. They are in base units, and no client can choose a label's value."""

import importlib
import os
import platform
import sys
from collections.abc import Iterable
from functools import cache
from typing import TypeVar

import prometheus_client.values
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

import mmhash
from mmhash.framing import SPEC_VERSION

# Creation times would double the number of series, and no query needs them.
disable_created_metrics()  # type: ignore[no-untyped-call]

M = TypeVar("M", Counter, Gauge, Histogram)

MULTIPROC_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

REGISTRY = CollectorRegistry()

BUILD_INFO = Gauge(
    "mmhash_build_info",
    "1, with the versions of the service.",
    ("version", "spec", "python"),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
BUILD_INFO.labels(mmhash.__version__, str(SPEC_VERSION), platform.python_version()).set(1)

REQUESTS = Counter("mmhash_requests", "Requests answered.", ("call", "status"), registry=REGISTRY)
SECONDS = Histogram(
    "mmhash_request_duration_seconds",
    "Time from the head of a request to the end of its response.",
    ("call",),
    registry=REGISTRY,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
BODY_BYTES = Counter("mmhash_body_bytes", "Bytes of request bodies received.", registry=REGISTRY)
ITEMS = Counter("mmhash_items", "Items hashed.", ("kind",), registry=REGISTRY)
PROBLEMS = Counter("mmhash_problems", "Requests that failed.", ("problem",), registry=REGISTRY)
CALLS = Gauge(
    "mmhash_calls_in_progress",
    "Requests in progress that have a body or are forwarded to a worker.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
HELD_BYTES = Gauge(
    "mmhash_held_bytes",
    "Bytes of request bodies held in memory.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
MAX_HELD_BYTES = Gauge(
    "mmhash_max_held_bytes",
    "The setting max_held_bytes, summed over all processes.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
RELOADS = Counter(
    "mmhash_reloads",
    "Reloads of a process's settings, by result: done or failed.",
    ("result",),
    registry=REGISTRY,
)
for _result in ("done", "failed"):
    RELOADS.labels(_result)  # increase() sees a first failure only if the series was 0 before
PROCESS_RESTARTS = Counter(
    "mmhash_process_restarts",
    "Processes started to replace one that exited or hung.",
    registry=REGISTRY,
)
FETCHES = Counter(
    "mmhash_fetches",
    "URLs requested, by result: fetched, unchanged, abandoned, or the problem.",
    ("result",),
    registry=REGISTRY,
)
MODEL_LOADS = Counter(
    "mmhash_model_loads",
    "Models loaded from disk, by result: loaded or failed.",
    ("model", "result"),
    registry=REGISTRY,
)
MEMO_LOOKUPS = Counter(
    "mmhash_memo_lookups",
    "Lookups of memo entries, by the source that had the entry.",
    ("kind", "source"),
    registry=REGISTRY,
)
MEMO_FAILURES = Counter(
    "mmhash_memo_failures",
    "Operations of the memo's store that failed or timed out.",
    ("operation",),
    registry=REGISTRY,
)

GATEWAY_DECISIONS = Counter(
    "mmhash_gateway_decisions",
    "Requests that the gateway routed, by how: planned, or why there was no plan.",
    ("how",),
    registry=REGISTRY,
)
GATEWAY_DECISION_SECONDS = Histogram(
    "mmhash_gateway_decision_seconds",
    "Time to plan a request and rank its workers.",
    registry=REGISTRY,
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1),
)
GATEWAY_TOKENS = Counter(
    "mmhash_gateway_tokens",
    "Tokens of planned prompts, by whether the worker has them cached: yes, no or expected.",
    ("worker", "cached"),
    registry=REGISTRY,
)
GATEWAY_RETRIES = Counter(
    "mmhash_gateway_retries",
    "Retries of requests at another worker, by reason: unreachable or broken.",
    ("reason",),
    registry=REGISTRY,
)
GATEWAY_BROKEN = Counter(
    "mmhash_gateway_broken_responses",
    "Responses that a worker broke off after the gateway had forwarded their head.",
    registry=REGISTRY,
)
GATEWAY_DISCONNECTS = Counter(
    "mmhash_gateway_disconnects",
    "Requests aborted at the worker because the client disconnected.",
    registry=REGISTRY,
)
GATEWAY_FIRST_BYTE_SECONDS = Histogram(
    "mmhash_gateway_first_byte_seconds",
    "Time from sending a prompt to a worker until the first byte of its response's body.",
    ("worker",),
    registry=REGISTRY,
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
GATEWAY_MISNAMED = Gauge(
    "mmhash_gateway_worker_misnamed",
    "1 if the worker's KV events list none of the blocks planned for it.",
    ("worker",),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
GATEWAY_REQUESTS = Gauge(
    "mmhash_gateway_requests_in_progress",
    "Requests forwarded to a worker and not yet answered.",
    ("worker",),
    registry=REGISTRY,
    multiprocess_mode="livesum",
)


@cache  # the package's own lookup takes longer than an increment
def labelled(metric: M, *labels: str) -> M:
    """Return the metric with these labels."""
    return metric.labels(*labels)


READ_AT_SCRAPE = CollectorRegistry()
"""Metrics that any process can report for all processes. Files share the other metrics."""


class _AllProcesses(MultiProcessCollector):
    """The metrics of all processes."""

    def collect(self) -> Iterable[Metric]:
        """Merge all files, except empty ones that a process has just created."""
        with os.scandir(os.environ[MULTIPROC_VARIABLE]) as entries:
            files = [entry.path for entry in entries if entry.name.endswith(".db") and _size(entry)]
        merged: Iterable[Metric] = self.merge(files, accumulate=True)  # type: ignore[no-untyped-call]
        return merged


def _size(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:  # its process has exited meanwhile
        return 0


def share() -> None:
    """Store this process's metrics in files that each process can read.

    prometheus_client decides at import where to store them, and a forked process inherits the
    supervisor's modules. So import them again.
    """
    importlib.reload(prometheus_client.values)
    importlib.reload(sys.modules[__name__])


def exposition() -> tuple[bytes, str]:
    """Return the metrics of all processes as text, and its Content-Type."""
    registry = REGISTRY
    if MULTIPROC_VARIABLE in os.environ:
        registry = CollectorRegistry()
        _AllProcesses(registry)  # type: ignore[no-untyped-call]
    text = generate_latest(registry) + generate_latest(READ_AT_SCRAPE)
    return text, CONTENT_TYPE_LATEST
