"""data: URLs."""

import base64

import pytest

from mmhash_service.fetch.data import MAX_ESCAPES, is_data_url, read_data_url
from mmhash_service.problems.problem import Problem


@pytest.mark.parametrize(
    ("url", "content"),
    [
        ("data:,", b""),
        ("data:,abc", b"abc"),
        ("DATA:,abc", b"abc"),
        ("data:,a%20b%FFc,d", b"a b\xffc,d"),
        ("data:,a+b", b"a+b"),
        ("data:text/plain;charset=x,abc", b"abc"),
        ("data:;base64,YWJj", b"abc"),
        ("data:image/png;base64,YWI=", b"ab"),
        ("data:image/png;BASE64,YQ==", b"a"),
        ("data:;charset=x;base64,YQ%3D%3d", b"a"),
        ("data:;base64,%2B%2f+/", b"\xfb\xff\xbf"),
        ("data:base64,YWJj", b"YWJj"),
        ("data:;base64;x=y,YWJj", b"YWJj"),
    ],
)
def test_the_content_of_a_data_url(url: str, content: bytes) -> None:
    assert is_data_url(url)
    assert read_data_url(url) == content


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("data:", "invalid-url"),
        ("data:;base64", "invalid-url"),
        ("data:,a#b", "invalid-url"),
        ("data:,ä", "invalid-url"),
        ("data:," + "%41" * (MAX_ESCAPES + 1), "invalid-url"),
        ("data:;base64,YQ", "invalid-base64"),
        ("data:;base64,YQ= =", "invalid-base64"),
        ("data:;base64,YW_-", "invalid-base64"),
        ("data:;base64,%FFAAA", "invalid-base64"),
    ],
)
def test_what_is_no_good_data_url(url: str, problem: str) -> None:
    with pytest.raises(Problem) as refused:
        read_data_url(url)
    assert refused.value.name == problem


def test_long_base64_with_an_escape_in_it() -> None:
    content = bytes(at % 251 for at in range(1_600_000))
    text = base64.b64encode(content).decode().replace("+", "%2B", 1)
    assert read_data_url("data:;base64," + text) == content


@pytest.mark.parametrize("url", ["http://a/", "dat:,", "database:,", ""])
def test_another_scheme(url: str) -> None:
    assert not is_data_url(url)
