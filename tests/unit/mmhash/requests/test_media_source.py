"""data: URLs."""

import base64

import pytest

from mmhash.requests.media_source import (
    _MAX_ESCAPES,
    Base64Error,
    DataUrlError,
    MediaSource,
    decode_data_url,
    is_data_url,
)


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
    assert decode_data_url(url) == content


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("data:", DataUrlError),
        ("data:;base64", DataUrlError),
        ("data:,a#b", DataUrlError),
        ("data:,ä", DataUrlError),
        ("data:," + "%41" * (_MAX_ESCAPES + 1), DataUrlError),
        ("data:;base64,YQ", Base64Error),
        ("data:;base64,YQ= =", Base64Error),
        ("data:;base64,YW_-", Base64Error),
        ("data:;base64,%FFAAA", Base64Error),
    ],
)
def test_a_malformed_data_url_is_refused(url: str, error: type[ValueError]) -> None:
    with pytest.raises(error):
        decode_data_url(url)


def test_long_base64_with_an_escape_in_it() -> None:
    content = bytes(at % 251 for at in range(1_600_000))
    text = base64.b64encode(content).decode().replace("+", "%2B", 1)
    assert decode_data_url("data:;base64," + text) == content


@pytest.mark.parametrize("url", ["http://a/", "dat:,", "database:,", ""])
def test_other_schemes_are_no_data_urls(url: str) -> None:
    assert not is_data_url(url)


def video(text: str) -> MediaSource:
    return MediaSource("video", text, content=None)


def test_a_video_of_frames_has_a_file_for_each() -> None:
    source = video("data:Video/JPEG;base64,YQ==,YmM=")
    assert source.is_frames
    assert source.frames() == [b"a", b"bc"]


@pytest.mark.parametrize("text", ["data:video/mp4;base64,YQ==", "https://example.com/a.mp4"])
def test_a_video_file_has_no_frames(text: str) -> None:
    assert not video(text).is_frames


@pytest.mark.parametrize(
    ("content", "error"),
    [("YQ==,YQ", Base64Error), (",".join(["YQ=="] * 1025), DataUrlError)],
)
def test_damaged_frames(content: str, error: type[ValueError]) -> None:
    with pytest.raises(error):
        video(f"data:video/jpeg;base64,{content}").frames()
