"""The id of each request, and OpenTelemetry spans if its API is installed and its SDK configured.

Without them a span is a context manager that does nothing (bench/tracing.py measures it). Spans
hold only names and sizes: no content, no URL and no exception message.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from mmhash_service.problems.problem import Problem

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer


ID_HEADER = b"x-request-id"

_GOOD_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}", re.ASCII)

request_id: ContextVar[str] = ContextVar("request_id", default="")


def id_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the id in the request's header if it is well-formed, otherwise a random id."""
    given = [value for name, value in headers if name == ID_HEADER]
    if len(given) == 1 and _GOOD_ID.fullmatch(given[0]):
        return given[0]
    return os.urandom(8).hex().encode()


try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    has_api = False
else:
    has_api = True


Header = tuple[bytes, bytes]

_HEADERS = frozenset({b"traceparent", b"tracestate"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_NO_SPAN = nullcontext()

_tracer: "Tracer | None" = None


def enable() -> bool:
    """Record spans from now on if a provider is configured. Return True if so."""
    global _tracer  # noqa: PLW0603  (read for each span)
    _tracer = None
    if has_api:
        provider = trace.get_tracer_provider()
        if not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            _tracer = provider.get_tracer("mmhash")
    return _tracer is not None


def span(name: str) -> AbstractContextManager[None]:
    """Record a part of the current request."""
    return _NO_SPAN if _tracer is None else _record(_tracer, name)


def note(name: str, value: str | int) -> None:
    """Set an attribute of the current span."""
    if _tracer is not None:
        trace.get_current_span().set_attribute(name, value)


def trace_id() -> str:
    """Return the id of the current trace in hex, or an empty string."""
    if _tracer is None:
        return ""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def request_span(
    method: str, route: str, headers: Iterable[Header]
) -> AbstractContextManager[None]:
    """Record a request as part of the trace that its header traceparent names."""
    if _tracer is None:
        return _NO_SPAN
    method = method if method in _METHODS else "_OTHER"
    return _record(
        _tracer,
        f"{method} {route}",
        context=_parent(headers),
        kind=trace.SpanKind.SERVER,
        attributes={"http.request.method": method, "http.route": route},
    )


def note_status(status: int) -> None:
    """Set the status of the current request's span. A server failure counts as an error."""
    if _tracer is not None:
        note("http.response.status_code", status)
        if status >= 500:
            trace.get_current_span().set_status(trace.StatusCode.ERROR)


def propagate(headers: list[Header]) -> list[Header]:
    """Return the headers of a forwarded request, with the current span as the parent."""
    if _tracer is None:
        return headers
    own: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(own)
    kept = [header for header in headers if header[0] not in _HEADERS]
    return kept + [(name.encode(), value.encode()) for name, value in own.items()]


def _parent(headers: Iterable[Header]) -> "Context | None":
    """Return the context that the headers name, or None if they are repeated or malformed."""
    found = [header for header in headers if header[0] in _HEADERS]
    carrier = {name.decode(): value.decode("latin-1") for name, value in found}
    if len(carrier) != len(found):
        return None
    return TraceContextTextMapPropagator().extract(carrier)


@contextmanager
def _record(tracer: "Tracer", name: str, **options: Any) -> Iterator[None]:
    with tracer.start_as_current_span(
        name,
        record_exception=False,  # the message may hold a client's bytes
        set_status_on_exception=False,
        **options,
    ) as current:
        try:
            yield
        except BaseException as error:
            reason = error.name if isinstance(error, Problem) else type(error).__name__
            current.set_attribute("error.type", reason)
            raise
