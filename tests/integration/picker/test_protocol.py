"""The rules of the endpoint picker protocol, each with a real Envoy (the table in docs/envoy.md).

Tests that start their own picker or Envoy are slow.
"""

import json
import socket
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import trustme
from blake3 import blake3
from grpc_health.v1 import health_pb2, health_pb2_grpc
from PIL import Image

import mmhash
from mmhash.engines import vllm
from tests.support.engine_worker import STREAM
from tests.support.envoy import SHOW_METADATA, Configuration, Picker, envoy_with, picker_for
from tests.support.gateway import EngineProcess
from tests.support.images import encode, image_part
from tests.support.service import TIMEOUT_S, count
from tests.support.waiting import wait_until

PATH = "/v1/chat/completions"
PEER = "x-override-bootstrap-host"
DESTINATION = "x-gateway-destination-endpoint"
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def image(side: int = 8) -> tuple[dict[str, Any], str]:
    """Return a part with an image, and its uuid."""
    file = encode(Image.effect_noise((side, side), 64))
    return image_part(file), vllm.uuid(mmhash.key(file))


def chat_with(part: dict[str, Any], **others: Any) -> dict[str, Any]:
    return CHAT | {"messages": [{"role": "user", "content": [part]}]} | others


def header(seen: dict[str, Any], name: str) -> list[str]:
    return [value for one, value in seen["headers"] if one == name]


# The answer.


def test_the_header_and_the_metadata_name_the_same_workers_the_best_one_first(
    client: httpx.Client, endpoints: list[str]
) -> None:
    answer = client.post(PATH, json=CHAT)
    seen = answer.json()
    (named,) = header(seen, DESTINATION)
    assert answer.headers[SHOW_METADATA] == named
    assert sorted(named.split(",")) == sorted(endpoints)
    assert seen["worker"] == f"w{endpoints.index(named.split(',')[0])}"


def test_a_client_does_not_name_the_worker(client: httpx.Client, endpoints: list[str]) -> None:
    for endpoint in endpoints * 2:
        seen = client.post(PATH, json=CHAT, headers={DESTINATION: endpoint}).json()
        assert len(header(seen, DESTINATION)) == 1
        assert len(header(seen, DESTINATION)[0].split(",")) == 2


def test_an_image_goes_to_the_worker_that_was_sent_it(client: httpx.Client) -> None:
    body = chat_with(image()[0])
    workers = {client.post(PATH, json=body).json()["worker"] for _ in range(6)}
    assert len(workers) == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_request_without_a_body_passes(client: httpx.Client, method: str) -> None:
    seen = client.request(method, "/v1/files/a?b=c").json()
    assert (seen["method"], seen["path"], seen["query"]) == (method, "/v1/files/a", "b=c")
    assert seen["body"] == ""


# The body.


@pytest.mark.parametrize("length", [0, 1, 61_999, 62_000, 62_001, 124_000, 1_900_000])
def test_a_body_passes_unchanged(client: httpx.Client, length: int) -> None:
    body = json.dumps(CHAT | {"user": "x" * length}).encode() if length else b""
    seen = client.post("/v1/x", content=body, headers={"content-type": "application/json"}).json()
    assert seen["body"].encode("latin-1") == body
    assert header(seen, "content-length") == [str(len(body))]


def test_a_chunked_body_passes_unchanged(client: httpx.Client) -> None:
    pieces = [b'{"messages": ', b" " * 100_000, b"[]}"]
    seen = client.post(PATH, content=iter(pieces)).json()
    assert seen["body"].encode() == b"".join(pieces)


@pytest.mark.parametrize("side", [8, 160, 1200])
def test_hashes_are_written_with_the_right_length(client: httpx.Client, side: int) -> None:
    part, uuid = image(side)
    seen = client.post(PATH, json=chat_with(part)).json()
    body = json.loads(seen["body"])
    assert body["messages"][0]["content"][0]["uuid"] == uuid
    assert header(seen, "content-length") == [str(len(seen["body"]))]


def test_hashes_of_callers_and_peers_do_not_pass(client: httpx.Client) -> None:
    part, uuid = image()
    body = chat_with(part | {"uuid": "forged"}, mmhash_tags=["forged"])
    headers = {PEER: "10.9.9.9", "x-mmhash-tenant-tag": "forged"}
    seen = client.post(PATH, json=body, headers=headers).json()
    assert uuid in seen["body"]
    assert "forged" not in seen["body"]
    assert not header(seen, PEER)
    assert not header(seen, "x-mmhash-tenant-tag")


@pytest.mark.slow
def test_trailers_end_a_streamed_body(
    configuration: Configuration, tmp_path: Path, picker: Picker
) -> None:
    configuration.body_mode("FULL_DUPLEX_STREAMED")
    configuration.manager["http_protocol_options"] = {"enable_trailers": True}
    body = json.dumps(chat_with(image()[0])).encode()
    request = (
        b"POST %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        b"Trailer: x-end\r\n\r\n%x\r\n%b\r\n0\r\nx-end: 1\r\n\r\n"
    ) % (PATH.encode(), len(body), body)
    with envoy_with(configuration, tmp_path):
        address = ("127.0.0.1", configuration.port)
        with socket.create_connection(address, TIMEOUT_S) as connection:
            connection.sendall(request)
            received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert received.startswith(b"HTTP/1.1 200")
    assert b"uuid" in received


@pytest.mark.slow
def test_headers_alone_are_answered_by_load(
    configuration: Configuration, tmp_path: Path, endpoints: list[str]
) -> None:
    configuration.body_mode("NONE")
    part, _ = image()
    body = chat_with(part | {"uuid": "from-annotate"})
    with envoy_with(configuration, tmp_path) as client:
        seen = client.post(PATH, json=body).json()
    assert json.loads(seen["body"]) == body
    assert sorted(header(seen, DESTINATION)[0].split(",")) == sorted(endpoints)


def test_a_stream_passes_and_counts_for_its_worker_until_it_ends(
    client: httpx.Client, picker: Picker
) -> None:
    body = CHAT | {"stream": True, "mode": "hang-in-stream"}
    with client.stream("POST", PATH, json=body) as answer:
        pieces = answer.iter_raw()
        assert next(pieces).startswith(STREAM[0])
        wait_until(lambda: sorted(picker.loads()) == [(0, 0), (1, 64)])
    wait_until(lambda: picker.loads() == [(0, 0)] * 2)
    with client.stream("POST", PATH, json=CHAT | {"stream": True}) as answer:
        assert b"".join(answer.iter_raw()) == b"".join(STREAM)


# The subset.


@pytest.mark.slow
@pytest.mark.parametrize("form", [",".join, list], ids=["text", "list"])
def test_a_subset_limits_the_workers(
    configuration: Configuration, tmp_path: Path, endpoints: list[str], form: Any
) -> None:
    configuration.subset(form([endpoints[1], "10.9.9.9:80"]))
    with envoy_with(configuration, tmp_path) as client:
        seen = [client.post(PATH, json=CHAT).json() for _ in range(4)]
    assert {one["worker"] for one in seen} == {"w1"}
    assert {header(one, DESTINATION)[0] for one in seen} == {endpoints[1]}


@pytest.mark.slow
@pytest.mark.parametrize("subset", ["", ["10.9.9.9:80"], 7, [1]])
def test_a_subset_that_is_empty_or_matches_nothing_is_answered_with_503(
    configuration: Configuration, tmp_path: Path, subset: Any
) -> None:
    configuration.subset(subset)
    with envoy_with(configuration, tmp_path) as client:
        answer = client.post(PATH, json=CHAT)
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:mmhash:problem:no-workers"


# Refusals.


@pytest.mark.slow
def test_without_a_healthy_worker_the_answer_is_503(tmp_path: Path, endpoints: list[str]) -> None:
    with (
        picker_for(["http://127.0.0.1:9"]) as picker,
        envoy_with(Configuration(endpoints, picker.endpoint), tmp_path) as client,
    ):
        answer = client.post(PATH, json=CHAT)
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"] == "2"
    assert answer.json()["error"]["code"] == "no-workers"


@pytest.mark.slow
def test_a_body_for_which_the_picker_never_has_room_is_refused(
    tmp_path: Path, fleet: list[EngineProcess], endpoints: list[str]
) -> None:
    form = {"content-type": "application/octet-stream"}
    with (
        picker_for([fleet[0].url], settings={"max_held_bytes": 1 << 20}) as picker,
        envoy_with(Configuration(endpoints, picker.endpoint), tmp_path) as client,
    ):
        answer = client.post("/v1/files", content=b"x" * (1 << 19), headers=form)
        assert client.post(PATH, json=CHAT).status_code == 200
    assert answer.status_code == 413


def test_a_body_over_the_limit_is_refused(client: httpx.Client) -> None:
    answer = client.post(PATH, json=CHAT | {"user": "x" * (2 << 20)})
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body-too-large"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-mmhash-tenant": "nobody"}, 403),
        ({"x-mmhash-tenant": "acme"}, 200),
        ({"content-encoding": "gzip"}, 415),
    ],
)
def test_headers_that_the_gateway_refuses_are_refused(
    client: httpx.Client, headers: dict[str, str], status: int
) -> None:
    assert client.post(PATH, json=CHAT, headers=headers).status_code == status


@pytest.mark.slow
def test_keys_of_clients_and_of_workers(
    tmp_path: Path, fleet: list[EngineProcess], endpoints: list[str]
) -> None:
    keys = {"api_key_digests": [blake3(b"client").hexdigest()]}
    with (
        picker_for([fleet[0].url], settings=keys) as picker,
        envoy_with(Configuration(endpoints, picker.endpoint), tmp_path) as client,
    ):
        refused = client.post(PATH, json=CHAT, headers={"authorization": "Bearer other"})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        seen = client.post(PATH, json=CHAT, headers={"authorization": "Bearer client"}).json()
        assert not header(seen, "authorization")
    key = {"gateway.worker_api_key": "engine"}
    with (
        picker_for([fleet[0].url], settings=key) as picker,
        envoy_with(Configuration(endpoints, picker.endpoint), tmp_path) as client,
    ):
        seen = client.post(PATH, json=CHAT, headers={"authorization": "Bearer client"}).json()
        assert header(seen, "authorization") == ["Bearer engine"]


@pytest.mark.slow
def test_a_retry_goes_to_a_worker_of_the_same_engine(
    tmp_path: Path, fleet: list[EngineProcess], endpoints: list[str]
) -> None:
    """Other engines take hashes in other fields, so they must not get the body."""
    workers = [f"{fleet[0].url},engine=vllm@0.32.0", f"{fleet[1].url},engine=sglang@0.5.23"]
    with (
        picker_for(workers) as picker,
        envoy_with(Configuration(endpoints, picker.endpoint), tmp_path) as client,
    ):
        for _ in range(4):
            seen = client.post(PATH, json=CHAT).json()
            assert header(seen, DESTINATION) == [endpoints[int(seen["worker"][1])]]


# The server.


@pytest.mark.parametrize(
    ("worker", "statuses"),
    [("w0", {"liveness": 1, "readiness": 1}), ("none", {"liveness": 1, "readiness": 2})],
)
def test_health_by_grpc(fleet: list[EngineProcess], worker: str, statuses: dict[str, int]) -> None:
    url = fleet[0].url if worker == "w0" else "http://127.0.0.1:9"
    with picker_for([url]) as picker, grpc.insecure_channel(picker.endpoint) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", ""):
            found = stub.Check(health_pb2.HealthCheckRequest(service=name)).status
            assert found == statuses.get(name, statuses["readiness"])
        assert picker.http.get("/ready").status_code == (200 if worker == "w0" else 503)


@pytest.mark.slow
def test_tls(tmp_path: Path, fleet: list[EngineProcess], endpoints: list[str]) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    chain, key, trusted = (tmp_path / name for name in ("tls.crt", "tls.key", "ca.pem"))
    certificate.cert_chain_pems[0].write_to_path(chain)
    certificate.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(trusted)
    settings = {"gateway.picker_tls": str(tmp_path)}
    with picker_for([fleet[1].url], settings=settings) as picker:
        configuration = Configuration(endpoints, picker.endpoint)
        configuration.ext_proc["failure_mode_allow"] = False
        kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
        validation = {"trusted_ca": {"filename": str(trusted)}}
        configuration.picker["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": kind,
                "common_tls_context": {"validation_context": validation},
            },
        }
        with envoy_with(configuration, tmp_path) as client:
            assert client.post(PATH, json=CHAT).json()["worker"] == "w1"


@pytest.mark.slow
def test_processes_share_a_port(
    tmp_path: Path, fleet: list[EngineProcess], endpoints: list[str]
) -> None:
    with picker_for([fleet[1].url], "--processes", "2") as picker:
        configuration = Configuration(endpoints, picker.endpoint)
        configuration.ext_proc["failure_mode_allow"] = False
        options = configuration.picker["typed_extension_protocol_options"]
        (options,) = options.values()
        options["common_http_protocol_options"] = {"max_requests_per_connection": 1}
        with envoy_with(configuration, tmp_path) as client:
            for _ in range(20):
                assert client.post(PATH, json=CHAT).json()["worker"] == "w1"
        assert len(picker.service.server_pids) == 2
        assert count(picker.http, "mmhash_gateway_decisions_total") == 20
