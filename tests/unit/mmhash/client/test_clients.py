"""Both clients have the same methods, and name the extra that they need."""

import asyncio
import inspect
from typing import Any

import pytest

import mmhash
from mmhash.client import AsyncClient, Client
from tests.support.scripted import ScriptedServer


def test_both_clients_have_the_same_calls() -> None:
    for name, call in vars(Client).items():
        if not name.startswith("_"):
            other = getattr(AsyncClient, "aclose" if name == "close" else name)
            assert inspect.signature(call) == inspect.signature(other)
            assert inspect.iscoroutinefunction(other)
            assert call.__doc__ == other.__doc__


def test_a_closed_client_has_its_own_error() -> None:
    client = mmhash.Client()
    client.close()
    client.close()
    for call in (client.info, lambda: client.hash(b"abc")):
        with pytest.raises(mmhash.ClosedError, match="this Client is closed"):
            call()

    async def main() -> None:
        client = mmhash.AsyncClient()
        await client.aclose()
        await client.aclose()
        with pytest.raises(mmhash.ClosedError, match="this AsyncClient is closed"):
            await client.hash(b"abc")

    asyncio.run(main())


MAKERS = [Client, AsyncClient]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8780", "localhost:8780", "//host", "http://", "http:///x", "ftp://host",
     "unix:/run/x", "http://host:x", "http://[::1",
     "http://a\nb", "http://user:secret@host", "http://host/?q", "http://host/#f",
     "http://\udcff", "http://host\0"],
)  # fmt: skip
def test_a_url_that_names_no_service_is_refused(make: Any, url: str) -> None:
    with pytest.raises(mmhash.InputValueError, match="base_url"):
        make(url)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("base_url", None, mmhash.InputTypeError),
        ("base_url", b"http://host", mmhash.InputTypeError),
        ("timeout_s", None, mmhash.InputTypeError),
        ("timeout_s", True, mmhash.InputTypeError),
        ("timeout_s", 0, mmhash.InputValueError),
        ("timeout_s", -1, mmhash.InputValueError),
        ("timeout_s", float("nan"), mmhash.InputValueError),
        ("timeout_s", float("inf"), mmhash.InputValueError),
        ("timeout_s", 1e12, mmhash.InputValueError),
        pytest.param("timeout_s", 10**400, mmhash.InputValueError, id="timeout-no-float"),
        ("retries", 1.5, mmhash.InputTypeError),
        ("retries", True, mmhash.InputTypeError),
        ("retries", -1, mmhash.InputValueError),
        ("api_key", b"key", mmhash.InputTypeError),
        ("api_key", "a\r\nb: c", mmhash.InputValueError),
        ("api_key", " a", mmhash.InputValueError),
        ("tenant", "a\0", mmhash.InputValueError),
        ("tenant", "\ud800", mmhash.InputValueError),
    ],
)
def test_an_option_that_cannot_work_is_refused(
    make: Any, name: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=name):
        make(**{name: value})


def test_a_path_stands_before_that_of_each_request() -> None:
    with ScriptedServer((200, {}, b'{"in_place": []}')) as server:
        with Client(f"{server.url}/a/b/") as client:
            client.info()
        assert server.paths == ["/a/b/info"]
