"""Another spelling of an allowed host: a filter before the service reads another host than it does.

A host and a port have one plain spelling; every other one is refused before anything is resolved.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.victim import serving
from tests.support.visited_host import VisitedHost

HOSTS = {
    "ideographic dots": "127\u30020\u30020\u30021",
    "fullwidth dots": "127\uff0e0\uff0e0\uff0e1",
    "halfwidth dots": "127\uff610\uff610\uff611",
    "fullwidth digits": "\uff11\uff12\uff17.0.0.1",
    "Arabic digits": "\u0661\u0662\u0667.0.0.1",
    "circled digits": "\u2460\u2461\u2466.0.0.1",
    "short": "127.1",
    "one number": "2130706433",
    "octal": "0177.0.0.1",
    "hexadecimal": "0x7f.0.0.1",
    "leading zeros": "127.000.000.001",
    "a dot at its end": "127.0.0.1.",
    "percent-encoded": "%31%32%37.0.0.1",
    "a percent-encoded dot": "127%2e0.0.1",
    "in brackets": "[127.0.0.1]",
    "mapped": "[::ffff:127.0.0.1]",
    "a zone": "127.0.0.1%25lo",
    "a user": "user@127.0.0.1",
    "an empty user": "@127.0.0.1",
    "a soft hyphen": "127.0.0\u00ad.1",
    "a zero-width space": "127.0.0.1\u200b",
    "a tab": "127.0.\t0.1",
    "a line feed": "127.0.0.1\n",
    "a backslash": "127.0.0.1\\",
    "a long s": "local\u017fhost",
}
PORTS = {
    "a plus": "+{}",
    "a leading zero": "0{}",
    "leading zeros": "000000{}",
    "an underscore": "{:_}",
    "a minus": "-{}",
    "a space before": " {}",
    "a space behind": "{} ",
    "a tab": "\t{}",
    "a fraction": "{}.0",
    "hexadecimal": "{:#x}",
    "an exponent": "{}e0",
    "twice": "{0}:{0}",
    "empty, then twice": ":{}",
}
DIGITS = {"Arabic": 0x660, "fullwidth": 0xFF10, "Devanagari": 0x966, "bold": 0x1D7CE}


class _Host(VisitedHost):
    """The allowed host: it answers with content, or once with a redirect."""

    location: str | None = None

    def respond(self) -> bytes:
        head = "HTTP/1.1 200 OK"
        if self.location is not None:
            head, self.location = f"HTTP/1.1 302 Found\r\nLocation: {self.location}", None
        return f"{head}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc".encode()


@pytest.fixture(scope="module")
def host() -> Iterator[_Host]:
    host = _Host()
    yield host
    host.close()


@pytest.fixture(scope="module")
def fetching(host: _Host) -> Any:
    hosts = [f"127.0.0.1:{host.port}", f"localhost:{host.port}"]
    with serving(url_hosts=hosts, url_networks=["127.0.0.0/8"]) as server:
        yield server


def fetch(server: Any, url: str) -> Any:
    return server.hash_json({"kind": "bytes", "url": url})


def assert_refused(server: Any, host: _Host, url: str) -> None:
    visits = host.visits
    answer = fetch(server, url)
    assert answer.json()["type"].endswith(("invalid-url", "url-off")), answer.text
    assert host.visits == visits


def test_the_plain_spelling_is_followed(fetching: Any, host: _Host) -> None:
    visits = host.visits
    answer = fetch(fetching, f"http://127.0.0.1:{host.port}/a")
    assert answer.status_code == 200, answer.text
    assert host.visits == visits + 1


@pytest.mark.parametrize("spelling", HOSTS.values(), ids=HOSTS)
def test_no_other_spelling_of_the_host_is(fetching: Any, host: _Host, spelling: str) -> None:
    assert_refused(fetching, host, f"http://{spelling}:{host.port}/")


@pytest.mark.parametrize("spelling", PORTS.values(), ids=PORTS)
def test_no_other_spelling_of_the_port_is(fetching: Any, host: _Host, spelling: str) -> None:
    assert_refused(fetching, host, f"http://127.0.0.1:{spelling.format(host.port)}/")


@pytest.mark.parametrize("zero", DIGITS.values(), ids=DIGITS)
def test_digits_of_other_scripts_are_no_port(fetching: Any, host: _Host, zero: int) -> None:
    port = "".join(chr(zero + int(digit)) for digit in str(host.port))
    assert_refused(fetching, host, f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "location",
    [
        "http://127%E3%80%820%E3%80%820%E3%80%821:{}/",
        "http://127.0.0.1:0{}/",
        "http://127.0.0.1:+{}/",
        "//127.0.0.1:0{}/",
        "//user@127.0.0.1:{}/",
        "HTTP://0x7f.0.0.1:{}/",
    ],
)
def test_a_redirect_leads_to_no_other_spelling(fetching: Any, host: _Host, location: str) -> None:
    visits = host.visits
    host.location = location.format(host.port)
    answer = fetch(fetching, f"http://127.0.0.1:{host.port}/redirect")
    assert answer.json()["type"].endswith("url-refused"), answer.text
    assert host.visits == visits + 1


@pytest.mark.parametrize("location", ["/b", "b", "?b", "//127.0.0.1:{}/b", "http://127.0.0.1:{}/"])
def test_a_redirect_in_the_plain_spelling_is_followed(
    fetching: Any, host: _Host, location: str
) -> None:
    visits = host.visits
    host.location = location.format(host.port)
    answer = fetch(fetching, f"http://127.0.0.1:{host.port}/redirect")
    assert answer.status_code == 200, answer.text
    assert host.visits == visits + 2
