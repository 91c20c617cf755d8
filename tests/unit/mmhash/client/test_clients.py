"""Where a client finds the service, whom it says that it is, and what it needs."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

import mmhash
from mmhash.client import AsyncClient, Client

KEY = "a key with ü"


@pytest.fixture(scope="module")
def socket_path(serving: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service at a Unix socket, which asks for a key."""
    path = tmp_path_factory.mktemp("client") / "s"
    digests = f'["{blake3(KEY.encode()).hexdigest()}"]'
    with serving("--uds", str(path), "--set", f"api_key_digests={digests}") as where:
        assert where == str(path)
        yield path


def test_it_asks_at_a_unix_socket_with_its_key(
    connect: Any, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    for where in (socket_path, str(socket_path)):
        with connect(uds=where, api_key=KEY) as client:
            assert client.hash(b"abc")[0].key == mmhash.key(b"abc")
            assert client.ready() is client.health() is True


def test_without_a_good_key_it_is_refused(connect: Any, socket_path: Path) -> None:
    for key in (None, "another"):
        with connect(uds=socket_path, api_key=key) as client:
            assert client.ready() is True
            with pytest.raises(mmhash.ServiceError, match="API key") as caught:
                client.hash(bytes(2 << 20))
        assert (caught.value.status, caught.value.type) == (401, "urn:mmhash:problem:unauthorized")


def test_both_clients_have_the_same_calls() -> None:
    for name, call in vars(Client).items():
        if not name.startswith("_") and name != "close":
            other = getattr(AsyncClient, name)
            assert inspect.signature(call) == inspect.signature(other)
            assert inspect.iscoroutinefunction(other)
            assert call.__doc__ == other.__doc__


def test_both_are_there_when_asked_for() -> None:
    assert mmhash.Client is Client
    assert mmhash.AsyncClient is AsyncClient


def test_without_httpx_the_extra_is_named() -> None:
    program = "import sys; sys.modules['httpx'] = None; import mmhash; mmhash.Client"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: httpx is not installed: pip install 'mmhash-keys[client]'"
    )
