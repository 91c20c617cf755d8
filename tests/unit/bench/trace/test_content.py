"""Real content from ids: the same id is the same content, another id another one."""

import base64
from dataclasses import replace
from io import BytesIO

from PIL import Image as Pillow

import mmhash
from bench.trace.content import data_url, jpeg, openai_request, text_of
from bench.trace.records import Image, Text
from bench.trace.workload import AGENTS, generate

IMAGE = Image("i7", 56, 84)


def test_an_id_is_the_same_image_and_another_id_another() -> None:
    assert jpeg(IMAGE) == jpeg(IMAGE)
    others = [jpeg(Image(f"i{number}", 56, 84)) for number in range(50)]
    keys = {mmhash.key(Pillow.open(BytesIO(one))) for one in others}
    assert len(keys) == 50


def test_an_image_has_its_size() -> None:
    with Pillow.open(BytesIO(jpeg(IMAGE))) as opened:
        assert (opened.format, opened.size) == ("JPEG", (56, 84))
    assert IMAGE.tokens == 6


def test_a_text_has_its_length() -> None:
    assert text_of(Text("a", 30), 1) == text_of(Text("a", 30), 1)
    assert text_of(Text("a", 30), 1) != text_of(Text("b", 30), 1)
    assert len(text_of(Text("a", 30), 4)) == 120


def test_a_request_has_the_parts_in_order() -> None:
    request = generate(replace(AGENTS, sessions=1))[1]
    body = openai_request(request, "tiny", letters_per_token=1)
    types = [[part["type"] for part in one["content"]] for one in body["messages"]]
    assert types == [["image_url", "text"], ["text"], ["image_url", "image_url", "text"]]
    assert [one["role"] for one in body["messages"]] == ["user", "assistant", "user"]
    assert body["max_tokens"] == request.output_tokens
    assert "cache_salt" not in body
    url = body["messages"][0]["content"][0]["image_url"]["url"]
    assert url == data_url(request.images[0])
    assert base64.b64decode(url.partition(",")[2]) == jpeg(request.images[0])


def test_a_tenant_has_its_salt() -> None:
    trace = generate(replace(AGENTS, sessions=4, tenants=2))
    salts = {openai_request(one, "tiny")["cache_salt"] for one in trace}
    assert salts == {"t0", "t1"}
