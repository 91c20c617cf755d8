"""Long base64 is set aside before parsing: the document means the same, and is written back byte for byte."""

import base64
import json
import os

import pytest

from mmhash.requests import ShortText

CONTENT = os.urandom(3000)
RUN = base64.b64encode(CONTENT)
URL = b"data:image/png;base64," + RUN


def test_a_content_that_is_set_aside_is_decoded_and_put_back() -> None:
    whole = b'{"a": "%b", "b": ["%b", "x"]}' % (URL, URL)
    short = ShortText(whole)
    assert len(short.text) < 200
    parsed = json.loads(short.text)
    assert parsed["a"] == parsed["b"][0]  # equal contents have one word
    assert bytes(short.content(parsed["a"]) or b"") == CONTENT
    assert short.restore(short.text) == whole
    assert short.restore(b'{"a": 1}') == b'{"a": 1}'


@pytest.mark.parametrize(
    "text",
    [
        b'"data:image/png;base64,AAAA"',  # short
        b'"data:image/png;base64,%b%%3D"' % RUN,
        b'"data:image/png;base64,%b\\/"' % RUN,
        b'"data:image/png;base64,%b=A"' % RUN,
        b'"data:image/png;base64,%b' % RUN,
        b'"data:image/png;base64\\u002c%b"' % RUN,
        b'"%b"' % RUN,
    ],
)
def test_other_texts_are_left_to_the_parser(text: bytes) -> None:
    assert ShortText(text).text == text


@pytest.mark.parametrize(
    "whole",
    [
        b'{"type": "base64", "data" :\t"%b"}' % RUN,
        b'{"image_data":["%b", "http://host/"]}' % RUN,
        b'{"url": "%b", "\\"data":"%b"}' % (URL, RUN),
    ],
)
def test_plain_base64_of_members_named_data_is_set_aside(whole: bytes) -> None:
    short = ShortText(whole)
    assert len(short.text) < 200
    assert short.restore(short.text) == whole
    *_, text = (one for one in json.loads(short.text).values() if one != "http://host/")
    word = text[0] if isinstance(text, list) else text
    assert bytes(short.content(word) or b"") == CONTENT


@pytest.mark.parametrize(
    "text",
    [
        b'{"data": "%b\\n"}' % RUN,
        b'{"data": %b}' % RUN,
        b'{"metadata": "AAAA"}',
        b'["the \\"data\\": \\"%b\\""]' % RUN,
        b'{"data": "%b' % RUN,
    ],
)
def test_other_members_are_left_to_the_parser(text: bytes) -> None:
    assert ShortText(text).text == text


def test_different_contents_of_one_length_and_ends_are_told_apart() -> None:
    contents = [bytes(2000) + bytes([number]) + bytes(999) for number in range(3)]
    urls = [f"data:;base64,{base64.b64encode(one).decode()}" for one in contents]
    short = ShortText(json.dumps(urls).encode())
    assert [bytes(short.content(one) or b"") for one in json.loads(short.text)] == contents


def test_a_mark_within_a_longer_string_changes_nothing_around_it() -> None:
    whole = b'["see \\"%b\\" and %b", 1]' % (URL, URL)
    short = ShortText(whole)
    assert short.restore(short.text) == whole
    parsed, original = json.loads(short.text), json.loads(whole)
    assert [short.restore(parsed[0].encode()).decode(), parsed[1]] == original
