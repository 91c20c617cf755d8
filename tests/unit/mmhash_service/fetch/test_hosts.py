"""The host allowlist refuses every URL that does not plainly name an allowed host."""

import re

import pytest

from mmhash_service.fetch.hosts import MAX_URL, HostAllowlist
from mmhash_service.problems.problem import Problem

HOSTS = HostAllowlist(
    (
        "good.example",
        "*.below.example",
        "ported.example:8443",
        "*.both.example:80",
        "192.0.2.7",
        "[2001:db8::7]:8080",
        "xn--bcher-kva.example",
        "localhost",
    )
)


def refusal(url: str, hosts: HostAllowlist = HOSTS) -> str:
    with pytest.raises(Problem) as refused:
        hosts.allowed(url)
    return refused.value.name


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("http://good.example", "http://good.example"),
        ("https://good.example/a/b.png?c=d%20e", "https://good.example/a/b.png?c=d%20e"),
        ("HTTPS://GOOD.Example/A", "https://good.example/A"),
        ("https://good.example:443/", "https://good.example/"),
        ("http://good.example:80/", "http://good.example/"),
        ("https://good.example/a#b", "https://good.example/a"),
        ("https://good.example/ä", "https://good.example/%C3%A4"),
        ("https://good.example/@a", "https://good.example/@a"),
        ("https://a.below.example/", "https://a.below.example/"),
        ("https://a.b.below.example/", "https://a.b.below.example/"),
        ("https://ported.example:8443/", "https://ported.example:8443/"),
        ("http://a.both.example/", "http://a.both.example/"),
        ("http://192.0.2.7/", "http://192.0.2.7/"),
        ("http://[2001:db8::7]:8080/", "http://[2001:db8::7]:8080/"),
        ("https://xn--bcher-kva.example/", "https://XN--BCHER-KVA.example/"),
        ("https://" + "good.example/".ljust(MAX_URL - 8, "a"), None),
    ],
)
def test_an_allowed_url_is_not_changed(url: str, same: str | None) -> None:
    allowed = HOSTS.allowed(url)
    assert (allowed.raw_scheme, allowed.raw_host, allowed.port, allowed.raw_path) == (
        (other := HOSTS.allowed(same or url)).raw_scheme,
        other.raw_host,
        other.port,
        other.raw_path,
    )
    assert allowed.fragment == ""
    if same is not None:
        assert allowed == same


@pytest.mark.parametrize(
    "url",
    [
        "http://other.example/",
        "http://below.example/",  # only what is below it
        "http://notbelow.example/",
        "http://good.example.evil.example/",
        "http://evilgood.example/",
        "http://good.example:81/",
        "http://good.example:443/",
        "https://good.example:80/",
        "https://good.example:8443/",
        "http://ported.example/",
        "http://ported.example:8080/",
        "https://a.both.example/",
        "http://127.0.0.1/",
        "http://0.0.0.0/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::7f00:1]/",
        "http://evil.example#@good.example/",
        "http://evil.example?@good.example/",
        "http://good.example:65536/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[2001:0:7f00:1::]/",
        "http://[fe80::1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://metadata.google.internal/",
        "http://localhost:22/",
    ],
)
def test_a_host_that_is_not_listed_is_refused(url: str) -> None:
    assert refusal(url) == "url-off"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "good.example",
        "//good.example/",
        "/good.example",
        "http:",
        "http://",
        "http:///good.example/",
        "http://:80/",
        "ftp://good.example/",
        "gopher://good.example:6379/_FLUSHALL",
        "javascript://good.example/%0aalert(1)",
        "http+unix://good.example/",
        " http://good.example/",
        "http://good.example/\r\nHost: evil.example\r\n",
        "http://good.example/a\tb",
        "http://good.example/\0",
        "http://good.example\n.evil.example/",
        "http://user:password@good.example/",
        "http://@good.example/",
        "http://good.example@evil.example/",
        "http://evil.example\\@good.example/",
        "http://good.example\\.evil.example/",
        "http://good.example:/",
        "http://ported.example:+8443/",
        "http://ported.example:08443/",
        "http://ported.example:٨٤٤٣/",
        "http://ported.example:\uff18\uff14\uff14\uff13/",
        "http://ported.example:0x20fb/",
        "http://good.example:0/",
        "http://good.example:-1/",
        "http://192。0。2。7/",
        "http://127。0。0。1/",
        "https://a\uff0ebelow.example/",
        "https://bücher.example/",
        "https://bücher｡example/",
        "https://Bücher.example/",
        "https://mu\u0308ller.example/",
        "http://loca\u017fhost/",
        "http\u017f://good.example/",
        "http://[2001:db8::7]:08080/",
        "http://[2001:db8::7]8080/",
        "http://[[2001:db8::7]]:8080/",
        "http://[192.0.2.7]/",
        "http://[good.example]/",
        "http://[2001:DB8:0::7]:8080/",  # an address has one spelling
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://good.example:80:80/",
        "http://good.example./",  # the same name, spelled so that a comparison would miss it
        "http://localhost./",
        "http://good..example/",
        "http://.good.example/",
        "http://*.below.example/",
        "http://good%2eexample/",
        "http://good.example%00.evil.example/",
        "http://127.0.0.1%2f@good.example/",
        "http://127.1/",
        "http://0/",
        "http://2130706433/",
        "http://017700000001/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://127.0.0.0x1/",
        "http://127.0.0.1./",
        "http://0300.0.2.7/",  # 192.0.2.7 in octal
        "http://192.0.2.07/",
        "http://999.0.0.1/",
        "http://1.2.3.4.5/",
        "http://\uff11\uff12\uff17.0.0.1/",  # fullwidth digits
        "http://ⓖood.example/",
        "http://g\u00adood.example/",
        "http://good.example\u2044/",
        "http://[::1/",
        "http://::1/",
        "http://[::1]evil.example/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[2001:db8::7%251]:8080/",
        "http://[v1.good]/",
        "http://" + "a" * 64 + ".below.example/",
        "http://" + "a." * 127 + "below.example/",
        "http://good.example/".ljust(MAX_URL + 1, "a"),
        "http://good.example/" + "ä" * (MAX_URL // 2),
        "http://good.example/\ud800",
    ],
)
def test_a_url_that_is_not_plainly_spelled_is_invalid(url: str) -> None:
    assert refusal(url) == "invalid-url"


def test_without_hosts_every_url_is_refused() -> None:
    assert refusal("http://good.example/", HostAllowlist(())) == "url-off"


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "*",
        "*.",
        "*.*.example",
        "good.*",
        "http://good.example",
        "good.example/",
        "good.example:",
        "good.example:x",
        "user@good.example",
        "good.example.",
        "127.1",
        "0x7f.0.0.1",
        "*.0.0.1",
        "[::1",
        "::1",
        "[::1%eth0]",
        "*.[::1]",
        "good example",
        "good\u3002example",
        "\uff11\uff19\uff12.0.2.7",
        "good.example:080",
    ],
)
def test_an_entry_that_names_no_host_stops_the_start(entry: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(entry))):
        HostAllowlist((entry,))
