"""A URL that makes the service ask hosts behind its firewall: in another spelling, by a redirect, by DNS.

Hosts are named by the operator, read once, resolved once, and every address is checked before it is dialled.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import mmhash
from mmhash_service.fetch.fetcher import Fetcher
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from tests.support.responses import refusal_of
from tests.support.victim import serving
from tests.support.visited_host import VisitedHost

# tests/unit/mmhash_service/fetch/test_hosts.py has all spellings; these show that each way in asks.
SPELLINGS = [
    "http://127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/",
    "http://127。0。0。1:{port}/",
    "http://allowed.example@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@allowed.example/",
    "http://127.0.0.1:{port}\r\nHost: allowed.example/",
    "http://169.254.169.254/latest/meta-data/",
    "gopher://127.0.0.1:{port}/",
    "unix:///var/run/docker.sock",
    "//127.0.0.1:{port}/",
]


SECRET = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret"


@pytest.fixture(scope="module")
def _host() -> Iterator[VisitedHost]:
    host = VisitedHost()
    yield host
    host.close()


@pytest.fixture
def inside(_host: VisitedHost) -> VisitedHost:
    """A host behind the firewall."""
    _host.answer, _host.visits = SECRET, 0
    return _host


@pytest.fixture(scope="module")
def allowing(_host: VisitedHost) -> Any:
    """A server that may ask the host, and reads 1000 bytes of it."""
    hosts = [f"127.0.0.1:{_host.port}"]
    with serving(url_hosts=hosts, url_networks=["127.0.0.0/8"], max_body_bytes=1000) as server:
        yield server


@pytest.fixture(scope="module")
def fetching() -> Any:
    """A server that may ask some names, of which one is this host's."""
    hosts = ["localhost", "127.0.0.1", "[::1]", "allowed.example"]
    with serving(url_hosts=hosts) as server:
        yield server


@pytest.mark.parametrize("url", SPELLINGS)
def test_no_spelling_of_a_url_leads_inside(fetching: Any, inside: VisitedHost, url: str) -> None:
    found = refusal_of_url(fetching, url.format(port=inside.port))
    assert found in {"url-off", "url-refused", "invalid-url", "invalid-base64"}
    assert inside.visits == 0
    fetching.assert_well()


def refusal_of_url(server: Any, url: str) -> str:
    found = refusal_of(server.hash_json({"kind": "bytes", "url": url}))
    # The same way into an engine's request.
    part = {"type": "image_url", "image_url": {"url": url}}
    body = {"messages": [{"role": "user", "content": [part]}]}
    assert refusal_of(server.client.post("/annotate?engine=vllm", json=body)) == found
    return found


def test_an_allowed_name_of_an_inner_address_is_not_dialled(inside: VisitedHost) -> None:
    with serving(url_hosts=[f"localhost:{inside.port}", f"127.0.0.1:{inside.port}"]) as server:
        for host in ("localhost", "127.0.0.1"):
            url = f"http://{host}:{inside.port}/"
            assert refusal_of_url(server, url) == "url-refused"
    assert inside.visits == 0


LOCATIONS = [
    "http://169.254.169.254/latest/meta-data/",
    "http://localhost:{port}/",
    "http://127.0.0.1:1/",
    "//localhost:{port}/",
    "file:///etc/passwd",
    "data:,secret",
    "gopher://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@evil.example/",
    "http://127%E3%80%820%E3%80%820%E3%80%821:{port}/",
    "http://127.0.0.1:0{port}/",
    "//user@127.0.0.1:{port}/",
    "HTTP://0x7f.0.0.1:{port}/",
    "http://127.0.0.1:{port}/",
    "/again",
    "",
]


def test_a_redirect_leads_nowhere_else(allowing: Any, inside: VisitedHost) -> None:
    for location in LOCATIONS:
        target = location.format(port=inside.port)
        head = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n"
        inside.answer = f"{head}Connection: close\r\n\r\n".encode()
        inside.visits = 0
        answer = allowing.hash_json({"kind": "bytes", "url": f"http://127.0.0.1:{inside.port}/"})
        assert refusal_of(answer) == "url-refused", location
        assert inside.visits <= 4


def test_dns_that_changes_its_answer_is_asked_once(inside: VisitedHost) -> None:
    """The server's own resolver cannot be bent from outside, so the name server is a function here."""
    answers = iter([["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"]])
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    async def fetch(networks: list[str]) -> bytes:
        settings = Settings(url_hosts=(f"evil.example:{inside.port}",), url_networks=networks)
        fetcher = Fetcher(settings, resolve)
        content = bytearray()
        try:
            url = fetcher.allowed(f"http://evil.example:{inside.port}/")
            async with fetcher.get(url, None) as remote:
                await remote.read(content.extend)
        finally:
            await fetcher.close()
        return bytes(content)

    # What was checked is what was dialled: nobody asked again in between.
    assert asyncio.run(fetch(["127.0.0.0/8"])) == b"secret"
    assert asked == ["evil.example"]
    for _ in range(2):
        with pytest.raises(Problem, match="url-refused"):
            asyncio.run(fetch(["127.0.0.0/8"]))
    assert inside.visits == 1


def test_one_inner_address_among_public_ones_is_enough_to_refuse() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "127.0.0.1"]

    async def fetch() -> None:
        fetcher = Fetcher(Settings(url_hosts=("evil.example",)), resolve)
        try:
            async with fetcher.get(fetcher.allowed("http://evil.example/"), None):
                raise AssertionError
        finally:
            await fetcher.close()

    with pytest.raises(Problem, match="url-refused"):
        asyncio.run(fetch())


def test_a_host_that_gives_another_length_than_it_says_is_refused(
    allowing: Any, inside: VisitedHost
) -> None:
    url = f"http://127.0.0.1:{inside.port}/"
    for head, status, name in (
        ("Content-Length: 7", 502, "url-failed"),
        ("Content-Length: 99999999999", 413, "body-too-large"),
        ("Content-Encoding: gzip\r\nContent-Length: 6", 502, "url-failed"),
        ("X: y", 502, "url-failed"),
    ):
        inside.answer = f"HTTP/1.1 200 OK\r\nConnection: close\r\n{head}\r\n\r\nsecret".encode()
        answer = allowing.hash_json({"kind": "bytes", "url": url})
        assert (answer.status_code, answer.json()["type"]) == (
            status,
            f"urn:mmhash:problem:{name}",
        )
    inside.answer = SECRET
    answer = allowing.hash_json({"kind": "bytes", "url": url})
    assert answer.json()["items"][0]["key"] == mmhash.key(b"secret").hex()
