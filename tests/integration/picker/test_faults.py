"""Pickers and workers crash, hang or disagree with Envoy. No answerable request is lost."""

import asyncio
import itertools
import json
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import grpc
import httpx
import pytest

from mmhash_service.picker import ext_proc
from tests.support.engine_worker import STREAM
from tests.support.envoy import Configuration, Picker, envoy_with, picker_for
from tests.support.gateway import EngineProcess, engines, replace
from tests.support.service import TIMEOUT_S, count
from tests.support.waiting import wait_until

# Most tests start their own picker and Envoy.
pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
DESTINATION = "x-gateway-destination-endpoint"
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}

SECONDS = float(os.environ.get("PICKER_FAULTS_S", "8"))
"""How long pickers are killed and workers replaced."""


def endpoint(engine: EngineProcess) -> str:
    return engine.url.removeprefix("http://")


def is_idle(picker: Picker) -> bool:
    """Return True if the picker holds nothing and counts nothing for any worker."""
    held = count(picker.http, "mmhash_held_bytes")
    return held == 0 and not any(map(any, picker.loads()))


def test_without_a_picker_requests_go_on_and_no_header_decides(
    configuration: Configuration, endpoints: list[str], tmp_path: Path
) -> None:
    configuration.picker["load_assignment"]["endpoints"][0]["lb_endpoints"].clear()
    with envoy_with(configuration, tmp_path) as client:
        named = {DESTINATION: endpoints[0]}
        seen = [client.post(PATH, json=CHAT, headers=named).json()["worker"] for _ in range(6)]
    assert Counter(seen) == {"w0": 3, "w1": 3}


@pytest.mark.parametrize("mode", ["BUFFERED", "NONE"])
def test_a_picker_that_hangs_delays_a_request_by_the_time_out(
    fleet: list[EngineProcess], endpoints: list[str], tmp_path: Path, mode: str
) -> None:
    with picker_for([one.url for one in fleet]) as picker:
        configuration = Configuration(endpoints, picker.endpoint)
        configuration.body_mode(mode)
        configuration.ext_proc["message_timeout"] = "0.5s"
        with envoy_with(configuration, tmp_path) as client:
            picker.service.process.send_signal(signal.SIGSTOP)
            try:
                assert client.post(PATH, json=CHAT).json()["body"] == json.dumps(
                    CHAT, separators=(",", ":")
                )
            finally:
                picker.service.process.send_signal(signal.SIGCONT)
            wait_until(lambda: is_idle(picker))


def test_a_worker_that_envoy_lacks_is_passed_over(
    fleet: list[EngineProcess], endpoints: list[str], tmp_path: Path
) -> None:
    with (
        engines(1) as unknown,
        picker_for([unknown[0].url, fleet[0].url]) as picker,
        envoy_with(Configuration(endpoints[:1], picker.endpoint), tmp_path) as client,
    ):
        stream = CHAT | {"stream": True, "mode": "hang-in-stream"}
        chosen = set()
        for _ in range(4):
            with client.stream("POST", PATH, json=stream) as answer:
                pieces = answer.iter_raw()
                next(pieces)
                wait_until(lambda: picker.loads() == [(0, 0), (1, 64)])
                chosen.add(answer.headers["x-worker"])
            wait_until(lambda: is_idle(picker))
    assert chosen == {"w0"}


def test_a_worker_that_the_picker_lacks_gets_nothing(
    fleet: list[EngineProcess], endpoints: list[str], tmp_path: Path
) -> None:
    with (
        picker_for([fleet[1].url]) as picker,
        envoy_with(Configuration(endpoints, picker.endpoint), tmp_path) as client,
    ):
        assert {client.post(PATH, json=CHAT).json()["worker"] for _ in range(6)} == {"w1"}


def test_a_worker_that_has_just_ended_is_replaced_by_the_next(tmp_path: Path) -> None:
    settings = {"gateway.health_interval_s": "600"}  # so the picker does not notice
    with engines(2) as fleet, picker_for([one.url for one in fleet], settings=settings) as picker:
        configuration = Configuration([endpoint(one) for one in fleet], picker.endpoint)
        with envoy_with(configuration, tmp_path) as client:
            fleet[0].kill()
            assert {client.post(PATH, json=CHAT).json()["worker"] for _ in range(6)} == {"w1"}
            wait_until(lambda: is_idle(picker))


@pytest.mark.parametrize("mode", ["BUFFERED", "FULL_DUPLEX_STREAMED"])
def test_a_client_that_leaves_within_its_body_leaves_nothing_behind(
    configuration: Configuration, picker: Picker, tmp_path: Path, mode: str
) -> None:
    configuration.body_mode(mode)
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" % PATH.encode()
    with envoy_with(configuration, tmp_path) as client:
        for _ in range(5):
            address = ("127.0.0.1", configuration.port)
            with socket.create_connection(address, TIMEOUT_S) as connection:
                connection.sendall(head + b'{"half": "' + b"x" * 50_000)
                if mode == "FULL_DUPLEX_STREAMED":
                    wait_until(lambda: count(picker.http, "mmhash_held_bytes") > 100_000)
        wait_until(lambda: is_idle(picker))
        assert client.post(PATH, json=CHAT).status_code == 200


@pytest.mark.parametrize(("mode", "status"), [("BUFFERED", 200), ("FULL_DUPLEX_STREAMED", 500)])
def test_envoy_goes_on_with_a_body_that_it_still_has(
    fleet: list[EngineProcess], endpoints: list[str], tmp_path: Path, mode: str, status: int
) -> None:
    body = json.dumps(CHAT | {"user": "x" * 100_000}).encode()
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    with picker_for([one.url for one in fleet]) as picker:
        configuration = Configuration(endpoints, picker.endpoint)
        configuration.body_mode(mode)
        with envoy_with(configuration, tmp_path):
            address = ("127.0.0.1", configuration.port)
            with socket.create_connection(address, TIMEOUT_S) as connection:
                connection.sendall(head % (PATH.encode(), len(body)) + body[:50_000])
                wait_until(lambda: count(picker.http, "mmhash_held_bytes") > 0)
                picker.service.kill()
                if status == 200:  # the failure must not wait for the rest
                    connection.sendall(body[50_000:])
                received = connection.recv(1 << 16)
    assert received.startswith(b"HTTP/1.1 %d " % status)


def test_a_picker_that_stops_ends_no_response(
    fleet: list[EngineProcess], endpoints: list[str], tmp_path: Path
) -> None:
    with (
        picker_for([one.url for one in fleet]) as picker,
        envoy_with(Configuration(endpoints, picker.endpoint), tmp_path) as client,
    ):
        wait_until(lambda: picker.http.get("/ready").status_code == 200)
        with ThreadPoolExecutor(1) as threads:
            try:
                for worker in fleet:
                    worker.send_signal(signal.SIGSTOP)
                pending = threads.submit(client.post, PATH, json=CHAT)
                wait_until(lambda: any(map(any, picker.loads())))
                picker.service.stop()
                assert not pending.done()
            finally:
                for worker in fleet:
                    worker.send_signal(signal.SIGCONT)
            assert pending.result().status_code == 200
        with client.stream("POST", PATH, json=CHAT | {"stream": True}) as answer:
            assert b"".join(answer.iter_raw()) == b"".join(STREAM)


# Streams that Envoy never sends.


def messages(seed: int) -> Iterator[bytes]:
    """Return the messages of a stream: parts in any order, cut, or random bytes."""
    chance = random.Random(seed)
    headers = ext_proc.HttpHeaders()
    for name, value in [
        (b":method", b"POST"),
        (b":path", chance.choice([PATH.encode(), b"", b"//\xff%", b"/generate?x=1"])),
        (b"x-mmhash-tenant", b"\xff"),
        (b"content-type", chance.choice([b"", b"application/json", b"multipart/form-data"])),
    ][: chance.randrange(5)]:
        headers.headers.headers.add(name=name, raw_value=value)
    text = json.dumps(CHAT).encode()
    parts = [
        ext_proc.ProcessingRequest(request_headers=headers),
        ext_proc.ProcessingRequest(request_body={"body": text, "end_of_stream": True}),
        ext_proc.ProcessingRequest(request_body={"body": text[: chance.randrange(len(text))]}),
        ext_proc.ProcessingRequest(request_trailers={}),
        ext_proc.ProcessingRequest(response_headers={}),
        ext_proc.ProcessingRequest(response_body={}),
        ext_proc.ProcessingRequest(response_trailers={}),
        ext_proc.ProcessingRequest(),
    ]
    parts[0].protocol_config.request_body_mode = chance.randrange(6)
    space = parts[0].metadata_context.filter_metadata["envoy.lb.subset_hint"]
    if chance.random() < 0.3:
        space.fields[f"{DESTINATION}-subset"].list_value.values.add().number_value = 1
    if chance.random() < 0.8:
        yield parts[0].SerializeToString()
    for part in chance.choices(parts, k=chance.randrange(6)):
        data = part.SerializeToString()
        kind = chance.random()
        if kind < 0.2:
            data = data[: chance.randrange(len(data) + 1)]
        elif kind < 0.3:
            data = chance.randbytes(chance.randrange(100))
        yield data


def test_random_streams_leave_nothing_behind(
    configuration: Configuration, picker: Picker, tmp_path: Path
) -> None:
    with grpc.insecure_channel(picker.endpoint) as channel:
        process = channel.stream_stream("/envoy.service.ext_proc.v3.ExternalProcessor/Process")
        for seed in range(400):
            call = process(messages(seed), timeout=TIMEOUT_S)
            try:
                for data in call:
                    ext_proc.ProcessingResponse.FromString(data)
            except grpc.RpcError:
                is_refused = call.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert is_refused or "DecodeError" in call.details(), call.details()
    wait_until(lambda: is_idle(picker))
    assert "Traceback" not in picker.service.log.text
    with envoy_with(configuration, tmp_path) as client:
        assert client.post(PATH, json=CHAT).status_code == 200


# All faults at once.


def test_no_request_is_lost_while_pickers_are_killed_and_workers_replaced(tmp_path: Path) -> None:
    file = tmp_path / "workers"
    with ExitStack() as stack:
        fleet = stack.enter_context(engines(3))
        replace(file, "".join(f"{one.url}\n" for one in fleet))
        pickers = [stack.enter_context(killable(file)) for _ in range(2)]
        asked = [one.endpoint for one in pickers]
        configuration = Configuration([endpoint(one) for one in fleet], *asked)
        stack.enter_context(envoy_with(configuration, tmp_path))
        url = f"http://127.0.0.1:{configuration.port}"
        until = time.monotonic() + SECONDS
        breaking = Thread(target=break_things, args=(until, pickers, fleet))
        breaking.start()
        lost, answers = asyncio.run(ask(url, until))
        breaking.join()
    print(f"{answers.total()} answers: {answers}")
    assert not lost
    assert len(answers) == 3


class KillablePicker:
    """A picker that starts again at its address."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._port = 0
        self._stack = ExitStack()
        self.start()

    def start(self) -> None:
        port = ("--port", str(self._port)) if self._port else ()
        running = picker_for([], "--worker-file", str(self._file), *port)
        self.picker = self._stack.enter_context(running)
        self.endpoint = self.picker.endpoint
        self._port = int(self.endpoint.rpartition(":")[2])

    def kill(self) -> None:
        self.picker.service.kill()
        self._stack.close()


@contextmanager
def killable(file: Path) -> Iterator[KillablePicker]:
    picker = KillablePicker(file)
    try:
        yield picker
    finally:
        picker.kill()


def break_things(until: float, pickers: list[KillablePicker], fleet: list[EngineProcess]) -> None:
    """Kill pickers in turn, and stop workers properly. Each starts again at its address."""
    for number in itertools.count():
        time.sleep(1)
        if time.monotonic() > until:
            return
        pickers[number % 2].kill()
        time.sleep(0.5)
        worker = fleet[number % len(fleet)]
        worker.send_signal(signal.SIGTERM)
        assert worker.process is not None
        worker.process.wait()
        worker.start()
        pickers[number % 2].start()


async def ask(url: str, until: float) -> tuple[list[Any], Counter[str]]:
    """Send requests until this time. Return the lost ones, and each worker's number of answers."""
    lost: list[Any] = []
    answers: Counter[str] = Counter()

    async def send(client: httpx.AsyncClient, number: int) -> None:
        body = CHAT | {"seconds": 0.1, "id": number}
        try:
            answer = await client.post(PATH, json=body)
        except httpx.HTTPError as error:
            lost.append(error)
            return
        if answer.status_code != 200 or json.loads(answer.json()["body"])["id"] != number:
            lost.append(answer.text)
        answers[answer.headers.get("x-worker", "")] += 1

    async with (
        httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client,
        asyncio.TaskGroup() as group,
    ):
        for number in itertools.count():
            if time.monotonic() > until:
                break
            group.create_task(send(client, number))
            await asyncio.sleep(0.03)
    return lost, answers
