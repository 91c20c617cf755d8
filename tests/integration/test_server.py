"""`serve()` in its own process: where it listens, what it logs, and how it stops."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import httpx
import pytest

import mmhash
from tests.support.service import (
    TIMEOUT_S,
    Service,
    command_line,
    count,
    handles_signals,
    read_all,
    serving,
)
from tests.support.waiting import wait_until


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as service:
        yield service


def accepts_requests(url: str) -> bool:
    """Return True unless the answering process drains. Its decoders may still be starting."""
    headers = {"content-type": "application/octet-stream"}
    return httpx.post(f"{url}/hash", content=b"abc", headers=headers, timeout=60).is_success


def test_a_request_that_has_begun_is_finished_after_sigterm(service: Service) -> None:
    with service.begin_request() as connection:
        service.process.send_signal(signal.SIGTERM)
        service.log.wait_for("draining")
        connection.sendall(b"def")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    service.wait()


def test_a_long_response_is_finished_after_sigterm(service: Service) -> None:
    """A long response outlives its call, and goes out as slowly as the client reads."""
    body = json.dumps(
        {"engine": "sglang@0.5.23", "input_ids": list(range(95_000)), "block_size": 1}
    ).encode()
    head = b"POST /blocks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        connection.settimeout(TIMEOUT_S)
        connection.connect(service.address)
        connection.sendall(head + body)
        assert connection.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        service.process.send_signal(signal.SIGTERM)
        service.log.wait_for("draining")
        time.sleep(2)  # longer than uvicorn's own time-out at shutdown
        answer = read_all(connection)
    fields, _, content = answer.partition(b"\r\n\r\n")
    assert f"content-length: {len(content)}".encode() in fields
    service.wait()


@pytest.mark.slow
def test_after_sigterm_every_accepted_request_is_answered_and_no_other(service: Service) -> None:
    """Clients post on keep-alive connections. Each has a first response before the signal.

    A request may be on its way while the server closes the idle connection. A refusal can be lost
    if the server closes before it has read the body. HTTP/1.1 prevents neither, so a client may see
    its last request cut off. The server's log proves that it had not accepted this request.
    """
    host, port = service.address
    url = f"http://{host}:{port}/hash"
    body, headers = bytes(2 << 20), {"content-type": "application/octet-stream"}
    clients = 8
    all_answered = Barrier(clients + 1, timeout=TIMEOUT_S)

    def post_until_refused() -> list[int | str]:
        results: list[int | str] = []
        with httpx.Client(timeout=60) as client:
            while not results or results[-1] == 200:
                try:
                    results.append(client.post(url, content=body, headers=headers).status_code)
                except httpx.ConnectError:
                    results.append("refused")
                except httpx.TransportError:
                    results.append("cut off")
                if len(results) == 1:
                    all_answered.wait()
        return results

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(post_until_refused) for _ in range(clients)]
        all_answered.wait()
        log = service.stop()
        results = [future.result() for future in running]
    for *answered, last in results:
        assert set(answered) == {200}
        assert last in {503, "refused", "cut off"}
    assert log.count("POST /hash 200") == sum(each.count(200) for each in results)
    assert set(re.findall(r"POST /hash (\d+)", log)) <= {"200", "503"}
    assert '"message":"stopped"' in log


@pytest.mark.slow
def test_a_unix_socket_is_its_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "mmhash.sock"
    with serving("--uds", str(path)) as service:
        assert f"running on unix:{path} with" in service.log.text
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://test", timeout=TIMEOUT_S) as client:
            headers = {"content-type": "application/octet-stream"}
            answer = client.post("/hash", content=b"abc", headers=headers)
            assert answer.json()["items"][0]["key"] == mmhash.key(b"abc").hex()
        service.stop()
        assert not path.exists()


def test_several_processes_answer_count_together_and_stop_together() -> None:
    with serving("--processes", "2") as service:
        headers = {"content-type": "application/octet-stream"}
        calls = 40
        for _ in range(calls):  # each on a new connection, so both processes get some
            with service.new_client() as client:
                answer = client.post("/hash", content=b"abc", headers=headers)
            assert answer.json()["items"][0]["key"] == mmhash.key(b"abc").hex()
        wanted = {
            f'mmhash_requests_total{{call="/hash",status="200"}} {calls}.0',
            "mmhash_calls_in_progress 0.0",
        }
        for _ in range(4):
            with service.new_client() as client:
                # A process counts a request after its response. Another process may be asked before that.
                wait_until(lambda: wanted <= set(client.get("/metrics").text.splitlines()))
        service.stop()


@pytest.mark.slow
@pytest.mark.parametrize("is_threaded", [False, True])
def test_processes_are_forked_unless_another_thread_may_hold_a_lock(
    is_threaded: bool, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    thread = "    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n"
    main = 'if __name__ == "__main__":\n'
    text = PROGRAM.replace("HOOK", "").replace(main, main + thread * is_threaded)
    program.write_text(text)
    with serving(program=[sys.executable, str(program)]) as service:
        with service.new_client() as client:
            assert client.get("/version").status_code == 200
            wait_until(lambda: count(client, "mmhash_requests_total", call="/version") == 1)
        # Once a process has answered, its command line is final.
        processes = service.server_pids
        assert any(b"spawn_main" in command_line(pid) for pid in processes) == is_threaded
        os.kill(processes[0], signal.SIGKILL)
        service.log.wait_for(f"process {processes[0]} exited with -9")
        with service.new_client() as client:
            # Each process counts in its own file.
            wait_until(lambda: count(client, "mmhash_process_restarts_total") == 1)
            assert count(client, "mmhash_requests_total", call="/version") == 1
        service.stop()


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_its_calls_are_not_counted_on() -> None:
    with serving("--processes", "2") as service:
        host, port = service.address
        url = f"http://{host}:{port}"
        connection = service.begin_request()
        calls = "mmhash_calls_in_progress 1.0"
        wait_until(lambda: calls in httpx.get(f"{url}/metrics", timeout=60).text)
        # Kill both processes, because either may have the call.
        for process in service.server_pids:
            os.kill(process, signal.SIGKILL)
        log = service.log.wait_for("exited with -9", 2)
        assert all("restart at once" in match.string for match in log)
        # The listener is still there: new connections wait for the next process.
        assert "mmhash_calls_in_progress 0.0" in httpx.get(f"{url}/metrics", timeout=60).text
        with connection, suppress(ConnectionResetError):
            assert connection.recv(1) == b""
        service.stop()


@pytest.mark.slow
def test_a_signal_to_one_process_drains_and_replaces_it() -> None:
    # On a busy machine, the requests may wait for longer than a body may stall.
    with serving("--processes", "2", settings={"timeout_s": 300}) as service:
        host, port = service.address
        url = f"http://{host}:{port}"
        for number in (signal.SIGINT, signal.SIGTERM):
            assert httpx.get(f"{url}/version", timeout=60).status_code == 200
            connections = [service.begin_request() for _ in range(8)]
            pids = service.server_pids
            while not handles_signals(pids[0]):  # the process is still importing
                time.sleep(0.01)
            os.kill(pids[0], number)
            service.log.wait_for("draining", 1)
            # The process has closed its listener, so new connections reach the other one.
            for _ in range(10):
                assert accepts_requests(url)
            for connection in connections:
                connection.sendall(b"def")
                assert b"HTTP/1.1 200 " in connection.recv(65536)
                connection.close()
            service.log.wait_for(f"process {pids[0]} exited with 0", 1)
        service.stop()


@pytest.mark.slow
def test_a_process_that_keeps_failing_is_restarted_ever_more_slowly(tmp_path: Path) -> None:
    program, broken = tmp_path / "program.py", tmp_path / "broken"
    program.write_text(PROGRAM.replace("HOOK", CRASH.replace("PATH", str(broken))))
    broken.touch()
    command = [sys.executable, str(program)]
    with serving(program=command) as service:
        url = "http://{}:{}".format(*service.address)
        matches = service.log.wait_for(r"exited with 3.*restart (at once|in \S+ s)", 6)
        delays = [match[1] for match in matches]
        assert delays == ["at once"] * 2 + ["in 1 s"] * 2 + ["in 2 s"] * 2
        broken.unlink()
        assert httpx.get(f"{url}/version", timeout=60).status_code == 200
        service.stop()


@pytest.mark.slow
def test_a_unix_socket_is_not_taken_from_a_server_that_uses_it(tmp_path: Path) -> None:
    path = tmp_path / "mmhash.sock"
    with serving("--uds", str(path)) as service:
        assert f"cannot listen on unix:{path}: Address already in use" in failure_of(
            "--uds", str(path)
        )
        assert path.is_socket()
        service.kill()
    # The server replaces the socket of a killed server, but no other file.
    with serving("--uds", str(path)) as service:
        path.unlink()
        path.write_text("mine")
        service.stop()
    assert path.read_text() == "mine"
    assert "the path exists and is not a Unix socket" in failure_of("--uds", str(path))
    assert path.read_text() == "mine"


PROGRAM = """
import os, threading, time
import mmhash_service.server.server as server
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings

def create(settings, models):
    app = create_app(settings, models=models)
    HOOK
    return app

if __name__ == "__main__":
    server.serve(Settings(port=0, processes=2), create)
"""
CRASH = """
    if os.path.exists("PATH"):
        os._exit(3)
"""


def failure_of(*arguments: str) -> str:
    command = [sys.executable, "-m", "mmhash", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    return done.stderr
