"""Unix sockets, API keys, closed clients, event loops, and arguments that the client refuses to send."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

import mmhash
from mmhash.client import AsyncClient
from tests.support.decoders import wait_for_ready
from tests.support.service import serving

KEY = "a key with ü"


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service on a Unix socket that requires an API key."""
    path = tmp_path_factory.mktemp("client") / "s"
    digests = [blake3(KEY.encode()).hexdigest()]
    with serving("--uds", str(path), settings={"api_key_digests": digests}) as service:
        assert service.socket_path == path
        with service.new_client() as client:
            wait_for_ready(client)
        yield path


def test_a_unix_socket_is_asked_with_the_key_and_without_a_proxy(
    connect: Any, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    for where in (socket_path, str(socket_path)):
        with connect(uds=where, api_key=KEY) as client:
            assert client.hash(b"abc")[0].key == mmhash.key(b"abc")


def test_a_client_without_a_good_key_is_refused(connect: Any, socket_path: Path) -> None:
    for key in (None, "another"):
        with (
            connect(uds=socket_path, api_key=key) as client,
            pytest.raises(mmhash.ServiceError, match="API key") as caught,
        ):
            client.hash(bytes(2 << 20))
        assert (caught.value.status, caught.value.type) == (401, "urn:mmhash:problem:unauthorized")


def test_one_client_for_one_event_loop(url: str) -> None:
    client = AsyncClient(url)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.hash(b"x"))
    with pytest.raises(mmhash.MMHashError, match="another event loop"):
        asyncio.run(client.hash(b"x"))
    loop.run_until_complete(client.aclose())
    loop.close()


def test_wrong_arguments_are_refused_by_the_client(connect: Any, url: str) -> None:
    with connect(url) as client:
        calls: list[Any] = [
            lambda: client.hash(b"x", algorithm="md5"),
            lambda: client.hash(b"x", of="text"),
            lambda: client.hash(b"x", engines=5),
            lambda: client.annotate({}, engine=5),
            lambda: client.pad("ids", []),
            lambda: client.pad(None, []),
            lambda: client.pad([1], [(0, 1, "key")]),
            lambda: client.pad([1], 5),
            lambda: client.blocks([1], 0, engine="vllm"),
            lambda: client.blocks([1], 1.5, engine="vllm"),
        ]
        for call in calls:
            with pytest.raises(mmhash.InputError):
                call()
