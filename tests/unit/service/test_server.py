"""`serve()` in a process of its own: where it listens, what it logs, and how it stops."""

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
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from threading import Event

import httpx
import pytest
from PIL import Image

import mmhash


@contextmanager
def serving(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "mmhash", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    with serving() as process:
        yield process


def address_of(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"running on http://([^:]+):(\d+)", line)
        if found:
            return found[1], int(found[2])
    raise AssertionError("the server ended before it listened")


def test_what_has_begun_is_finished_after_sigterm(process: subprocess.Popen[str]) -> None:
    with socket.create_connection(address_of(process), timeout=60) as connection:
        connection.sendall(
            b"POST /hash HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"
            b"Content-Length: 6\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"abc")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert any("draining" in line for line in process.stderr)
        connection.sendall(b"def")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert process.wait(60) == 0


def test_the_log_says_why_a_call_was_refused(process: subprocess.Popen[str]) -> None:
    url = "http://{}:{}/hash?of=pixels".format(*address_of(process))
    answer = httpx.post(url, content=b"no image", headers={"content-type": "image/png"})
    assert answer.status_code == 415
    os.kill(process.pid, signal.SIGTERM)
    assert process.stderr is not None
    assert "unsupported-image: UnidentifiedImageError" in process.stderr.read()


def test_an_image_that_pillow_warns_of_is_no_failure(process: subprocess.Popen[str]) -> None:
    body = BytesIO()
    Image.new("1", (9_460, 9_460)).save(body, "PNG")
    url = "http://{}:{}/hash?of=pixels".format(*address_of(process))
    headers = {"content-type": "image/png"}
    answer = httpx.post(url, content=body.getvalue(), headers=headers, timeout=60)
    assert answer.status_code == 200
    os.kill(process.pid, signal.SIGTERM)
    assert process.stderr is not None
    assert "DecompressionBomb" not in process.stderr.read()


def test_after_sigterm_every_call_taken_on_is_answered_and_no_other(
    process: subprocess.Popen[str],
) -> None:
    host, port = address_of(process)
    url = f"http://{host}:{port}"
    body, headers = bytes(2 << 20), {"content-type": "application/octet-stream"}
    stopped = Event()

    def ask() -> list[int | str]:
        found: list[int | str] = []
        with httpx.Client(timeout=60) as client:
            while not stopped.is_set():
                try:
                    found.append(
                        client.post(f"{url}/hash", content=body, headers=headers).status_code
                    )
                except httpx.ConnectError:
                    found.append("refused")
                    break
                except httpx.TransportError:
                    found.append("cut off")
                    break
                if found[-1] != 200:
                    break
        return found

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        log = process.stderr.read()
        assert process.wait(30) == 0
        stopped.set()
        found = [at.result() for at in asking]
    # Good answers, and then a refusal: by a problem, or because nobody listens any more.
    for *good, last in found:
        assert set(good) == {200}
        assert last in {503, "refused"}
    assert '"message": "stopped"' in log


def test_a_call_that_outlasts_the_grace_is_cut_off() -> None:
    with serving("--set", "grace_s=0.3") as process:
        connection = socket.create_connection(address_of(process), timeout=60)
        connection.sendall(
            b"POST /hash HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"
            b"Content-Length: 6\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        process.stderr.read()
        assert process.wait(30) == 0
        connection.close()


def test_a_unix_socket_is_its_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "mmhash.sock"
    with serving("--uds", str(path)) as process:
        assert process.stderr is not None
        assert f"running on unix:{path} with" in process.stderr.readline()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://test") as client:
            headers = {"content-type": "application/octet-stream"}
            answer = client.post("/hash", content=b"abc", headers=headers)
            assert answer.json()["items"][0]["key"] == mmhash.key(b"abc").hex()
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(30) == 0
        assert not path.exists()


def test_several_workers_answer_count_together_and_stop_together() -> None:
    with serving("--workers", "2") as process:
        host, port = address_of(process)
        headers = {"content-type": "application/octet-stream"}
        calls = 40
        for _ in range(calls):  # each on a connection of its own, so that both get some
            url = f"http://{host}:{port}/hash"
            answer = httpx.post(url, content=b"abc", headers=headers, timeout=60)
            assert answer.json()["items"][0]["key"] == mmhash.key(b"abc").hex()
        for _ in range(4):
            text = httpx.get(f"http://{host}:{port}/metrics", timeout=60).text
            assert f'mmhash_requests_total{{call="/hash",status="200"}} {calls}.0' in text
            assert "mmhash_calls_in_progress 0.0" in text
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        process.stderr.read()
        assert process.wait(30) == 0


def test_a_worker_that_dies_is_replaced() -> None:
    with serving("--workers", "2") as process:
        url = "http://{}:{}/version".format(*address_of(process))
        assert httpx.get(url, timeout=60).status_code == 200
        first, _ = workers_of(process)
        os.kill(first, signal.SIGKILL)
        assert process.stderr is not None
        assert any("ended with" in line for line in process.stderr)
        assert httpx.get(url, timeout=60).status_code == 200
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(30) == 0


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
