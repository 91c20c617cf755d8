"""The application as a whole, and `serve()` in a process of its own."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO

import httpx
import pytest
from PIL import Image

from mmhash_service.app import create_app
from mmhash_service.settings import Settings

SERVE = """
from mmhash_service.app import serve
from mmhash_service.settings import Settings
serve(Settings(port=0))
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-u", "-c", SERVE]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def address_of(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"running on http://([^:]+):(\d+)", line)
        if found:
            return found[1], int(found[2])
    raise AssertionError("the server ended before it listened")


def test_the_environment_gives_the_settings_that_are_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MMHASH_MAX_PIXELS", "7")
    assert create_app().state.settings.max_pixels == 7
    assert create_app(Settings(max_pixels=8)).state.settings.max_pixels == 8


def test_the_openapi_page_has_every_call_and_its_problems(client: httpx.Client) -> None:
    page = client.get("/openapi.json").json()
    assert page["paths"].keys() == {"/hash", "/health", "/version"}
    hash_call = page["paths"]["/hash"]["post"]
    assert hash_call["responses"].keys() == {"200", "default"}
    assert hash_call["responses"]["default"]["content"].keys() == {"application/problem+json"}
    assert "application/octet-stream" in hash_call["requestBody"]["content"]


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
        assert any("Shutting down" in line for line in process.stderr)
        connection.sendall(b"def")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert process.wait(60) in {0, -signal.SIGTERM}


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
