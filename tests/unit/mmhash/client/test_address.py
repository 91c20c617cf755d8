"""An address or an option that cannot work is refused when the client is made."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import mmhash
from mmhash.client import AsyncClient, Client
from mmhash.client.address import Address

MAKERS = [Client, AsyncClient]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8780", "localhost:8780", "//host", "http://", "http:///x", "ftp://host",
     "unix:/run/x", "http://host:0", "http://host:99999", "http://host:x", "http://[::1",
     "http://a\nb", "http://user:secret@host", "http://host/?q", "http://host/#f",
     "http://" + "a" * 64 + ".com", "http://\udcff", "http://host\0"],
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
        ("uds", 5, mmhash.InputTypeError),
        ("uds", "", mmhash.InputValueError),
        ("uds", "a" * 108, mmhash.InputValueError),
        ("uds", "a\0b", mmhash.InputValueError),
        ("timeout", None, mmhash.InputTypeError),
        ("timeout", True, mmhash.InputTypeError),
        ("timeout", 0, mmhash.InputValueError),
        ("timeout", -1, mmhash.InputValueError),
        ("timeout", float("nan"), mmhash.InputValueError),
        ("timeout", float("inf"), mmhash.InputValueError),
        ("timeout", 1e12, mmhash.InputValueError),
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
    target = Address.parse("https://host:1/a/b/", None).target("/hash?x=1")
    assert (target.scheme, target.host, target.port) == (b"https", b"host", 1)
    assert target.target == b"/a/b/hash?x=1"


def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert Address.parse("http://host", None).proxy is None
    monkeypatch.setenv("http_proxy", "user:word@proxy:3128")
    proxy = Address.parse("http://host", None).proxy
    assert proxy is not None
    assert (proxy.url.host, proxy.url.port) == (b"proxy", 3128)
    assert proxy.auth == (b"user", b"word")
    assert Address.parse("http://host", tmp_path / "s").proxy is None
    monkeypatch.setenv("no_proxy", "host")
    assert Address.parse("http://host", None).proxy is None
    monkeypatch.setenv("http_proxy", "socks9://proxy")
    with pytest.raises(mmhash.InputValueError, match="proxy of the environment"):
        Address.parse("http://another", None)


def test_after_close_there_is_a_named_error(connect: Any, url: str) -> None:
    with connect(url) as client:
        client.hash(b"x")
    with Client(url) as closed:
        closed.hash(bytes(2 << 20))
    calls: list[Any] = [
        lambda: closed.hash(b"x"),
        closed.health,
        lambda: closed.hash(bytes(2 << 20)),
    ]
    for call in calls:
        with pytest.raises(mmhash.MMHashError, match="this Client is closed"):
            call()

    async def main() -> None:
        async with AsyncClient(url) as client:
            await client.hash(b"x")
        with pytest.raises(mmhash.MMHashError, match="this AsyncClient is closed"):
            await client.hash(b"x")
        await client.close()

    asyncio.run(main())


def test_a_second_event_loop(url: str) -> None:
    client = AsyncClient(url)

    async def call() -> None:
        items = [b"x", bytes(2 << 20)]
        assert [item.key for item in await client.hash(items)] == mmhash.keys(items)

    for _ in range(3):
        asyncio.run(call())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(call())
    with pytest.raises(mmhash.MMHashError, match="another event loop"):
        asyncio.run(call())
    loop.run_until_complete(client.close())
    loop.close()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), b"x"])
def test_a_request_that_is_no_json_is_refused_here(connect: Any, url: str, value: Any) -> None:
    circle: list[Any] = []
    circle.append(circle)
    with connect(url) as client:
        for request in ({"x": value}, {"x": circle}):
            with pytest.raises(mmhash.InputError, match="JSON"):
                client.annotate(request, engine="vllm")


def test_arguments_that_are_none_of_theirs_are_refused_here(connect: Any, url: str) -> None:
    with connect(url) as client:
        calls: list[Any] = [
            lambda: client.hash(b"x", algorithm="md5"),
            lambda: client.hash(b"x", of="text"),
            lambda: client.hash(b"x", engines=["vllm"]),
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
