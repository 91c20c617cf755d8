"""A URL that makes the service ask hosts behind its firewall: in another spelling, by a redirect, by DNS.

Hosts are named by the operator, read once, resolved once, and every address is checked before it is dialled.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.responses import refusal_of
from tests.support.victim import serving
from tests.support.visited_host import VisitedHost

# tests/unit/mmhash_service/fetch/test_hosts.py has all spellings; these show that each way in asks.
SPELLINGS = [
    "http://127.0.0.1:{port}/",
    "http://2130706433:{port}/",
    "http://allowed.example@127.0.0.1:{port}/",
    "http://169.254.169.254/latest/meta-data/",
    "unix:///var/run/docker.sock",
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


# tests/unit/mmhash_service/fetch/test_fetcher.py has all of these.
LOCATIONS = ["http://169.254.169.254/latest/meta-data/", "file:///etc/passwd", "/again"]


def test_a_redirect_leads_nowhere_else(allowing: Any, inside: VisitedHost) -> None:
    for location in LOCATIONS:
        target = location.format(port=inside.port)
        head = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n"
        inside.answer = f"{head}Connection: close\r\n\r\n".encode()
        inside.visits = 0
        answer = allowing.hash_json({"kind": "bytes", "url": f"http://127.0.0.1:{inside.port}/"})
        assert refusal_of(answer) == "url-refused", location
        assert inside.visits <= 4
