"""Documents: media listed once, and requests written back byte for byte."""

import base64
import json
import os
from typing import Any

import pytest

from mmhash.engines.registry import find
from mmhash.errors import InputValueError
from mmhash.requests import Document, EngineRequest, ShortText, form_of_path, read_for
from mmhash.requests.raw_json import RequestError

CONTENT = os.urandom(3000)
URL = "data:image/png;base64," + base64.b64encode(CONTENT).decode()


def chat(*parts: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": list(parts)}]}).encode()


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def read(document: Document, engine: str = "vllm") -> EngineRequest:
    return read_for(document, *find(engine))


def test_equal_media_are_one_whatever_engine_reads_them() -> None:
    document = Document(chat(image(URL), {"type": "text", "text": "and"}, image(URL)))
    sources = [
        place.source for engine in ("vllm", "sglang") for place in read(document, engine).places
    ]
    assert len(sources) == 4
    assert len(set(sources)) == 1
    assert sources[0].content() == CONTENT


def test_a_request_that_is_not_changed_is_the_one_that_came() -> None:
    text = b' {"messages" :[ {"role": "user","content":"hi"} ] }'
    assert read(Document(text)).write() is text


def test_hashes_go_into_places_and_all_else_stays() -> None:
    rest = b'"a" : [1e400, -0.0, 10000000000000000000001], "big": "%b"' % URL.encode()
    text = b'{%b, "messages": [{"content": [{"image_url": "%b"}]}]}' % (rest, URL.encode())
    request = read(Document(text))
    request.fill(request.places[0], "f" * 64)
    written = request.write()
    assert b"[1e400, -0.0, 10000000000000000000001]" in written
    assert json.loads(written)["messages"][0]["content"] == [{"image_url": URL, "uuid": "f" * 64}]
    assert json.loads(written)["big"] == URL


@pytest.mark.parametrize("others", [(), ({"type": "text", "text": URL},), ({"a": {"b": [URL]}},)])
def test_messages_have_their_original_texts(others: Any) -> None:
    request = read(Document(chat(image(URL), {**image(URL), "note": "n"}, *others)))
    (message,) = request.messages()
    first, second, *rest = message["content"]
    assert (first.others, second.others) == (
        {"type": "image_url"},
        {"type": "image_url", "note": "n"},
    )
    assert rest == list(others)
    plain = read(Document(json.dumps({"messages": [{"role": "user", "content": URL}]}).encode()))
    assert plain.messages() == [{"role": "user", "content": URL}]


def test_a_member_beside_the_media_has_its_original_text() -> None:
    members = {**json.loads(chat(image(URL))), "user": URL}
    assert read(Document(json.dumps(members).encode())).members == {"user": URL}


def test_engines_do_not_see_each_others_hashes() -> None:
    document = Document(chat(image(URL)))
    one, other = read(document), read(document, "sglang")
    one.fill(one.places[0], "f" * 64)
    assert b"uuid" not in other.write()
    assert document.text == chat(image(URL))


def test_a_long_text_that_looks_like_an_image_reaches_the_template_whole() -> None:
    request = read(Document(chat({"type": "text", "text": f"what is {URL} ?"}, image(URL))))
    text, media = request.messages()[0]["content"]
    assert text["text"] == f"what is {URL} ?"
    assert media.modality == "image"


@pytest.mark.parametrize("url", [f"http://a/{URL}", f"https://a/?{URL}"])
def test_a_remote_url_is_fetched_whole(url: str) -> None:
    (place,) = read(Document(chat(image(url)))).places
    assert place.source.is_remote
    assert place.source.text == url


def test_a_clip_of_base64_is_no_url() -> None:
    part = {"type": "input_audio", "input_audio": {"data": URL, "format": "wav"}}
    (place,) = read(Document(chat(part))).places
    assert not place.source.is_remote
    with pytest.raises(InputValueError):
        place.source.content()


def test_media_without_content_get_no_hash() -> None:
    request = read(Document(chat(image("data:image/png;base64,"))))
    assert not request.places
    assert request.unclear


@pytest.mark.parametrize(
    ("members", "form"),
    [
        ({"messages": [], "prompt": "a", "text": "a"}, "chat"),
        ({"prompt": "a"}, "completions"),
        ({"prompt": "a", "text": "a"}, "generate"),
        ({"input_ids": [1]}, "generate"),
        ({}, "generate"),
    ],
)
def test_a_path_counts_and_members_only_without_one(members: dict[str, Any], form: str) -> None:
    text = json.dumps(members).encode()
    assert Document(text).form == form
    assert Document(text, form_of_path("/v1/completions")).form == "completions"


def test_an_unknown_path_is_an_error() -> None:
    with pytest.raises(InputValueError, match="/generate"):
        form_of_path("/v1/embeddings")


def test_a_chat_beside_a_prompt_is_not_read() -> None:
    members = {"text": "hi", **json.loads(chat(image(URL)))}
    document = Document(json.dumps(members).encode(), form_of_path("/generate"))
    assert not read(document, "sglang").places


@pytest.mark.parametrize(
    "text",
    [
        b'{"role": 1, "role": 2}',
        b'{"messages": [{"role": 1, "r\\u006fle": 2}]}',
        b'{"messages": [{"content": [{"image_url": {"role": 1, "x": "\\"", "role": 2}}]}]}',
        b'{"text": "\\u0022\\u0022\\u0022\\u0022", "a": [[{"role": 1, "role": 2}]]}',
    ],
)
def test_two_members_of_one_name_are_an_error_that_names_them(text: bytes) -> None:
    """An engine with another parser would read the other one."""
    with pytest.raises(RequestError, match="'role'"):
        Document(text)


def test_an_escaped_quote_is_no_repeated_member() -> None:
    assert Document(b'{"text": "\\u0022", "a": {"text": "b"}}').form == "generate"


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"a": NaN}', b'{"a": "\xff"}', b"{} {}"])
def test_a_body_that_is_no_object_is_an_error(text: bytes) -> None:
    with pytest.raises(RequestError):
        Document(text)


# Long base64 is set aside before parsing: the document means the same, and is written back byte for byte.

RUN = base64.b64encode(CONTENT)
RAW_URL = URL.encode()


def test_a_content_that_is_set_aside_is_decoded_and_put_back() -> None:
    whole = b'{"a": "%b", "b": ["%b", "x"]}' % (RAW_URL, RAW_URL)
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
        b'{"url": "%b", "\\"data":"%b"}' % (RAW_URL, RUN),
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
    whole = b'["see \\"%b\\" and %b", 1]' % (RAW_URL, RAW_URL)
    short = ShortText(whole)
    assert short.restore(short.text) == whole
    parsed, original = json.loads(short.text), json.loads(whole)
    assert [short.restore(parsed[0].encode()).decode(), parsed[1]] == original
