"""The headers that pass in each direction."""

from mmhash_service.gateway.headers import for_client, for_worker, request_head

HOP = [(b"connection", b"Keep-Alive, X-Mine"), (b"keep-alive", b"1"), (b"x-mine", b"1")]


def test_a_worker_gets_end_to_end_headers() -> None:
    sent = [
        *HOP,
        (b"host", b"gateway"),
        (b"content-length", b"3"),
        (b"transfer-encoding", b"chunked"),
        (b"expect", b"100-continue"),
        (b"x-override-bootstrap-host", b"evil"),
        (b"authorization", b"Bearer key"),
        (b"traceparent", b"00-1-1-01"),
        (b"accept", b"a"),
        (b"accept", b"b"),
    ]
    kept = [(b"authorization", b"Bearer key"), *sent[-3:]]
    assert for_worker(sent, keep_authorization=True) == kept
    assert for_worker(sent, keep_authorization=False) == kept[1:]


def test_a_connection_header_drops_no_header_of_one_value() -> None:
    sent = [(b"x-mmhash-tenant", b"acme"), (b"content-type", b"text/plain"), (b"x-mine", b"1")]
    named = [(b"connection", b"close, X-Mmhash-Tenant , content-type,x-mine")]
    assert for_worker([*named, *sent], keep_authorization=True) == sent[:2]


def test_a_client_gets_end_to_end_headers() -> None:
    received = [*HOP, (b"date", b"now"), (b"x-request-id", b"1"), (b"content-encoding", b"br")]
    assert for_client(received) == [(b"content-encoding", b"br")]


def test_the_head_of_a_request() -> None:
    assert request_head(b"POST", b"/a?b", b"h:1", [(b"x", b"y")], 3) == (
        b"POST /a?b HTTP/1.1\r\nhost: h:1\r\nx: y\r\ncontent-length: 3\r\n\r\n"
    )
    assert request_head(b"GET", b"/", b"h", [], None) == b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
