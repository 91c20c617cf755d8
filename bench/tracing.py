"""Measures the CPU time of a small request: without spans, with no-op spans, with recorded spans.

python -m bench.tracing
"""

import asyncio
import time
from contextlib import nullcontext
from typing import Any

from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from bench.support.measure import Row, medians_of, report
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from mmhash_service.telemetry import tracing

_REQUESTS = 1000
_BODY = bytes(1024)
_NOTHING = nullcontext()


async def _send_nothing(_message: Any) -> None:
    pass


async def _ask(app: FastAPI) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": _BODY, "more_body": False}

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/hash",
        "raw_path": b"/hash",
        "query_string": b"",
        "headers": [(b"content-type", b"application/octet-stream"), (b"content-length", b"1024")],
        "server": ("127.0.0.1", 1),
    }
    await app(scope, receive, _send_nothing)


def _microseconds(app: FastAPI) -> float:
    async def run() -> float:
        start = time.process_time()
        for _ in range(_REQUESTS):
            await _ask(app)
        return (time.process_time() - start) / _REQUESTS * 1e6

    return asyncio.run(run())


def rows() -> list[Row]:
    """Measure in turns: a busy moment of the machine slows them all."""
    plain = create_app(Settings())
    span, note = tracing.span, tracing.note

    def without_calls() -> float:
        tracing.span = lambda _name: _NOTHING  # type: ignore[assignment]
        tracing.note = lambda _name, _value: None  # type: ignore[assignment]
        try:
            return _microseconds(plain)
        finally:
            tracing.span, tracing.note = span, note

    def recorded() -> float:
        if not isinstance(trace.get_tracer_provider(), TracerProvider):  # it can be set once
            trace.set_tracer_provider(TracerProvider())
        app = create_app(Settings())
        try:
            return _microseconds(app)
        finally:
            tracing._tracer = None

    def span_alone() -> float:
        start = time.process_time()
        for _ in range(100_000):
            with span("receive"):
                pass
        return (time.process_time() - start) * 10

    calls = {
        "off": lambda: _microseconds(plain),
        "none": without_calls,
        "recorded": recorded,
        "span": span_alone,
    }
    off, none, sdk, alone = medians_of(calls, rounds=9)
    return [
        Row("1 KiB request, no SDK", off, "us", "without the calls", none, none / off),
        Row("1 KiB request, SDK", sdk, "us", "no SDK", off, off / sdk),
        Row("a span, no SDK", alone, "us"),
    ]


if __name__ == "__main__":
    report("tracing", rows())
