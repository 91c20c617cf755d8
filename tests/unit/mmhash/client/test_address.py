"""An address or an option that cannot work is refused when the client is made."""

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
        pytest.param("timeout", 10**400, mmhash.InputValueError, id="timeout-no-float"),
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
