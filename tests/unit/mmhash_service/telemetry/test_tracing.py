"""Spans: none without an SDK; with one, the parts of a request without its content."""

import time
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from mmhash_service.telemetry import tracing
from tests.support import in_process
from tests.support.images import encode_noise
from tests.support.in_process import Server
from tests.support.origin import Origin

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Spans as an SDK records them; it is configured for one test only."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    monkeypatch.undo()
    tracing.enable()


@pytest.fixture
def traced(exporter: InMemorySpanExporter, origin: Origin) -> Iterator[Server]:
    settings = Settings(
        decoders=1,
        url_hosts=(f"127.0.0.1:{origin.port}",),
        url_networks=("127.0.0.0/8",),
    )
    with in_process.running(create_app(settings)) as server:
        yield server


def by_name(exporter: InMemorySpanExporter, request: str) -> dict[str, ReadableSpan]:
    """Return the spans when that of the request has ended: a moment after its response."""
    while request not in (spans := {span.name: span for span in exporter.get_finished_spans()}):
        time.sleep(0.005)
    return spans


def test_the_parts_of_a_request_are_children_of_the_callers_span(
    traced: Server, exporter: InMemorySpanExporter, origin: Origin
) -> None:
    origin.answers["/secret.png"] = Origin.ok(encode_noise("PNG"))
    url = f"http://127.0.0.1:{origin.port}/secret.png"
    body = {"items": [{"kind": "image", "url": url}]}
    answer = traced.client.post("/hash?of=pixels", json=body, headers={"traceparent": TRACEPARENT})
    assert answer.status_code == 200, answer.text
    spans = by_name(exporter, "POST /hash")
    assert spans.keys() == {"POST /hash", "receive", "hash", "fetch", "memo", "decode"}
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {TRACE}
    assert f"{spans['POST /hash'].parent.span_id:016x}" == PARENT
    for child, parent in (
        ("receive", "POST /hash"),
        ("hash", "POST /hash"),
        ("decode", "memo"),
    ):
        assert spans[child].parent.span_id == spans[parent].context.span_id
    assert spans["POST /hash"].attributes["http.response.status_code"] == 200
    assert spans["receive"].attributes["mmhash.body_bytes"] > 0
    assert spans["memo"].attributes["mmhash.memo.source"] in {"miss", "memory"}
    assert "secret" not in "".join(span.to_json() for span in spans.values())


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("traceparent", "00-zz-1-01")],
        [("traceparent", "x" * 5000)],
        [("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT)],
    ],
)
def test_a_missing_or_malformed_parent_begins_a_trace(
    traced: Server, exporter: InMemorySpanExporter, headers: list[tuple[str, str]]
) -> None:
    assert traced.client.get("/version", headers=headers).status_code == 200
    span = by_name(exporter, "GET /version")["GET /version"]
    assert span.parent is None


def test_a_refused_request_has_a_span_with_the_problem(
    traced: Server, exporter: InMemorySpanExporter
) -> None:
    assert traced.client.post("/hash", content=b"a").status_code == 415
    assert (
        by_name(exporter, "POST /hash")["POST /hash"].attributes["http.response.status_code"] == 415
    )
    assert traced.client.get("/no/such/path").status_code == 404
    assert (
        by_name(exporter, "GET other")["GET other"].attributes["http.response.status_code"] == 404
    )


def test_an_error_names_its_problem_and_not_its_message(exporter: InMemorySpanExporter) -> None:
    assert tracing.enable()
    with pytest.raises(ValueError, match="a client's bytes"), tracing.span("receive"):
        raise ValueError("a client's bytes")
    span = by_name(exporter, "receive")["receive"]
    assert span.attributes == {"error.type": "ValueError"}
    assert not span.events


def test_forwarded_headers_have_the_current_span_as_parent(exporter: InMemorySpanExporter) -> None:
    tracing.enable()
    with tracing.request_span("POST", "/generate", [(b"traceparent", TRACEPARENT.encode())]):
        headers = dict(tracing.propagate([(b"traceparent", b"theirs"), (b"a", b"b")]))
    assert headers[b"a"] == b"b"
    own = by_name(exporter, "POST /generate")["POST /generate"].context
    assert headers[b"traceparent"] == f"00-{TRACE}-{own.span_id:016x}-01".encode()


def test_without_an_sdk_nothing_is_recorded() -> None:
    assert tracing.enable() is False
    assert tracing.span("receive") is tracing.span("hash")
    headers = [(b"traceparent", b"theirs")]
    assert tracing.propagate(headers) is headers
    assert tracing.trace_id() == ""
