"""The guard removes callers' hashes without a good tag, and forwards everything else."""

import asyncio
import codecs
import gzip
import json
import time
from collections.abc import Iterable
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

import mmhash
from mmhash import Digest, sign_tag
from mmhash.engines import sglang, vllm
from mmhash.engines.registry import ENGINES
from mmhash_service.guard.caller_hashes import MAX_TAGS
from mmhash_service.guard.middleware import Guard
from mmhash_service.limits.text import MAX_VALUES
from tests.support.guarded import Forwarded, Header, through_guard

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
SOON = int(time.time()) + 3600
KEYS = [mmhash.key(bytes([number])) for number in range(3)]
URL = "https://pictures.example/1.png"


def tag_of(key: Digest, **change: Any) -> str:
    given: dict[str, Any] = {"engine": "vllm", "tenant": None, "expires": SOON, "secrets": [NEW]}
    return sign_tag(key, **given | change)


def part(uuid: str, url: str = URL) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}, "uuid": uuid}


def chat(*parts: Any, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "what is this?"}, *parts]
    return {"model": "m", "messages": [{"role": "user", "content": content}], **more}


def call(body: bytes | list[bytes], headers: Iterable[Header] = (), **settings: Any) -> Forwarded:
    """Call an engine behind a guard, without a network between them."""
    return through_guard(
        body, headers, **{"engine": "vllm", "secrets": [NEW.hex(), OLD.hex()], **settings}
    )


def ask(request: Any, *headers: Header, **settings: Any) -> Forwarded:
    return call(json.dumps(request).encode(), headers, **settings)


# What is good passes.


@pytest.mark.parametrize("secret", [NEW, OLD])
def test_a_hash_with_a_good_tag_passes_and_the_tags_do_not(secret: bytes) -> None:
    request = chat(*(part(vllm.uuid(key)) for key in KEYS), temperature=0.5)
    tags = [tag_of(key, secrets=[secret]) for key in KEYS]
    assert ask(request | {"mmhash_tags": tags}).request == request


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (f"{engine.name}@{known.last}", text)
        for engine in ENGINES
        for known in engine.releases
        for text in engine.request_fields(KEYS[0], known.last).values()
        if isinstance(text, str)
    ],
)
def test_every_engine_s_spelling_of_a_tagged_key_passes(engine: str, text: str) -> None:
    tags = [tag_of(KEYS[0], engine=engine)]
    request = {"mm_hashes": [text], "extra_args": {"mm_hashes": [text, None]}, "n": 1}
    seen = ask(request | {"mmhash_tags": tags}, engine=engine)
    assert seen.request == request


def test_a_content_hash_of_tagged_bytes_passes_to_sglang() -> None:
    text = sglang.content_hash(b"the bytes of a picture")
    request = chat({"type": "image_url", "image_url": {"url": URL, "content_hash": text}})
    native = {"text": "a", "image_data": [URL], "mm_content_hashes": [text]}
    signed = Digest("blake3", bytes.fromhex(text.removeprefix("sha256:")))
    tags = [tag_of(signed, engine="sglang")]
    for whole in (request, native):
        assert ask(whole | {"mmhash_tags": tags}, engine="sglang").request == whole
        assert text not in str(ask(whole, engine="sglang").request)


def test_hashes_without_a_tag_are_removed() -> None:
    request = chat(*(part(vllm.uuid(key)) for key in KEYS))
    seen = ask(request | {"mmhash_tags": [tag_of(KEYS[2]), tag_of(KEYS[0])]})
    del request["messages"][0]["content"][2]["uuid"]
    assert seen.request == request


# What is not good does not.

BAD_TAGS = {
    "forged": tag_of(KEYS[0], secrets=[bytes(32)]),
    "of another key": tag_of(KEYS[1]),
    "expired": tag_of(KEYS[0], expires=int(time.time()) - 1),
    "of a tenant": tag_of(KEYS[0], tenant="acme"),
    "of another engine": tag_of(KEYS[0], engine="sglang"),
    "truncated": tag_of(KEYS[0])[:-4],
    "too long": tag_of(KEYS[0]) + "AAAA",
    "no text": 7,
    "null": None,
    "a list": [tag_of(KEYS[0])],
}


@pytest.mark.parametrize("tag", BAD_TAGS.values(), ids=BAD_TAGS)
def test_a_hash_with_a_bad_tag_is_removed(tag: Any) -> None:
    request = chat(part(vllm.uuid(KEYS[0])), mmhash_tags=[tag])
    seen = ask(request)
    assert "uuid" not in seen.request["messages"][0]["content"][1]
    assert seen.request.keys() == {"model", "messages"}


@pytest.mark.parametrize(
    "tags",
    [tag_of(KEYS[0]), {tag_of(KEYS[0]): 1}, 7, None],
    ids=["text", "object", "number", "null"],
)
def test_tags_that_are_not_a_list_are_ignored(tags: Any) -> None:
    seen = ask(chat(part(vllm.uuid(KEYS[0])), mmhash_tags=tags))
    assert "uuid" not in str(seen.request)
    assert "mmhash_tags" not in seen.request


def test_a_tag_of_a_removed_secret_is_ignored() -> None:
    request = chat(part(vllm.uuid(KEYS[0])), mmhash_tags=[tag_of(KEYS[0], secrets=[OLD])])
    assert "uuid" in str(ask(request).request)
    assert "uuid" not in str(ask(request, secrets=[NEW.hex()]).request)


def test_tags_are_good_for_the_guard_s_tenant() -> None:
    request = chat(part(vllm.uuid(KEYS[0])), mmhash_tags=[tag_of(KEYS[0], tenant="acme")])
    header = (b"x-mmhash-tenant", b"acme")
    assert "uuid" in str(ask(request, tenant="acme").request)
    assert "uuid" not in str(ask(request, tenant="umbrella").request)
    assert "uuid" not in str(ask(request, header).request)
    assert "uuid" not in str(ask(request, header, tenant="umbrella").request)


def test_a_header_names_the_tenant_if_the_setting_allows_it() -> None:
    request = chat(part(vllm.uuid(KEYS[0])), mmhash_tags=[tag_of(KEYS[0], tenant="acme")])
    acme, umbrella = ((b"x-mmhash-tenant", name) for name in (b"acme", b"umbrella"))
    assert "uuid" in str(ask(request, acme, tenant="@header").request)
    for headers in ([], [umbrella]):
        assert "uuid" not in str(ask(request, *headers, tenant="@header").request)
    for headers in ([acme, umbrella], [umbrella, acme], [acme, acme]):
        assert ask(request, *headers, tenant="@header").problem == "duplicate-header"


UNTAGGED = {
    "SGLang's list": {"text": "<image>", "image_data": [URL], "mm_hashes": ["00" * 8]},
    "SGLang's batch": {"text": ["a", "b"], "mm_hashes": [["00" * 8], [None, "11" * 8]]},
    "SGLang's content hashes": {"text": "a", "mm_content_hashes": ["sha256:" + "0" * 64]},
    "one hash for all": {"text": "a", "mm_hashes": "00" * 8},
    "a number": {"text": "a", "mm_hashes": [0]},
    "SGLang's OpenAI route": chat({"image_url": {"url": URL, "content_hash": "sha256:" + "0" * 64}}),
    "a video's": chat({"video_url": {"url": URL, "content_hash": "sha256:" + "0" * 64}}),
    "vLLM's part": chat(part("picture-1")),
    "a part that has only that": chat({"type": "image_url", "uuid": "picture-1"}),
    "a number as uuid": chat({"type": "image_url", "uuid": 1}),
    "a list as uuid": chat({"type": "image_url", "uuid": ["picture-1"]}),
    "a part in a part": chat({"type": "tool_result", "content": [part("picture-1")]}),
    "vLLM's tokens in": {"token_ids": [1], "features": {"mm_hashes": {"image": ["picture-1"]}}},
    "by modality": {"prompt": "a", "multi_modal_uuids": {"image": ["picture-1"], "audio": [None]}},
    "by modality, one": {"prompt": "a", "multi_modal_uuids": {"image": "picture-1"}},
    "Dynamo's": {"extra_args": {"mm_hashes": ["00" * 8], "other": 1}},
    "Dynamo's by modality": {"extra_args": {"mm_hashes_by_modality": {"image": ["00" * 8]}}},
    "a list on top": [chat(part("picture-1"))],
    "several prompts": {"messages": [chat(part("picture-1"))["messages"]] * 2},
}  # fmt: skip
FIELDS = (
    "uuid",
    "content_hash",
    "mm_hashes",
    "mm_content_hashes",
    "mm_hashes_by_modality",
    "multi_modal_uuids",
)


def without_fields(value: Any) -> Any:
    if isinstance(value, list):
        return [without_fields(one) for one in value]
    if isinstance(value, dict):
        return {name: without_fields(one) for name, one in value.items() if name not in FIELDS}
    return value


@pytest.mark.parametrize("request_", UNTAGGED.values(), ids=UNTAGGED)
def test_a_hash_needs_a_tag_in_every_field_that_an_engine_reads(request_: Any) -> None:
    seen = ask(request_)
    assert seen.request == without_fields(request_)
    assert dict(seen.headers)[b"content-length"] == str(len(seen.body)).encode()


def test_the_hashes_of_a_list_stay_together() -> None:
    spelled = [sglang.mm_hash(key) for key in KEYS[:2]]
    both = [tag_of(key, engine="sglang") for key in KEYS[:2]]
    for hashes in (spelled, [[spelled[0]], [None, spelled[1]]]):
        request = {"text": "a", "mm_hashes": hashes}
        assert ask(request | {"mmhash_tags": both}, engine="sglang").request == request
        assert ask(request | {"mmhash_tags": both[:1]}, engine="sglang").request == {"text": "a"}


@pytest.mark.parametrize("variant", ["0x%s", " %s", "-%s", "%s%s"])
def test_another_spelling_of_a_tagged_hash_is_removed(variant: str) -> None:
    text = variant.replace("%s", sglang.mm_hash(KEYS[0]))
    tags = [tag_of(KEYS[0], engine="sglang")]
    seen = ask({"mm_hashes": [text], "mmhash_tags": tags}, engine="sglang")
    assert seen.request == {}


# Nothing hides it.


@pytest.mark.parametrize(
    "body",
    [
        rb'{"messages":[{"content":[{"\u0075uid":"x"}]}]}',
        rb'{"messages":[{"content":[{"u\u0075\u0069d":"x"}]}]}',
        rb'{"messages":[{"content":[{"u\u0075i\u0064":"x","a":"\\u0075"}]}]}',
        rb'{"mm\u005fhashes":["x"]}',
        b' \r\n\t{"messages":[{"content":[{"uuid":"x"}]}]}\n',
        b'{"messages":[{"content":[{"uuid":"x","uuid":null}]}]}',
        b'{"messages":[{"content":[{"uuid":"x"}]}],"messages":[]}',
        b'{"messages":[],"messages":[{"content":[{"uuid":"x"}]}]}',
        b'{"mm_hashes":["x"],"mm_hashes":[]}',
        b'{"a":' + b"[" * 190 + b'{"uuid":"x"}' + b"]" * 190 + b"}",
        b'{"a":[1e400,-1e400],"uuid":"x"}',
    ],
)
def test_no_spelling_of_json_hides_a_hash(body: bytes) -> None:
    found: list[tuple[str, Any]] = []
    json.loads(call(body).body, object_pairs_hook=found.extend)
    assert [value for name, value in found if name in FIELDS and value] == []
    assert len(found) == len({name for name, _ in found})


BODY = json.dumps(chat(part("x"))).encode()


@pytest.mark.parametrize(
    "content_type", [None, b"text/plain", b"application/octet-stream", b"multipart/form-data"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
def test_neither_content_type_nor_method_hides_a_hash(
    content_type: bytes | None, method: str
) -> None:
    headers = [(b"content-type", content_type)] if content_type else []
    seen = call(BODY, headers, method=method)
    assert seen.status == 200
    assert b"uuid" not in seen.body


def test_chunks_do_not_hide_a_hash() -> None:
    seen = call([bytes([byte]) for byte in BODY], [(b"transfer-encoding", b"chunked")])
    assert seen.request == without_fields(json.loads(BODY))
    assert seen.headers == [(b"content-length", str(len(seen.body)).encode())]


@pytest.mark.parametrize(
    "body",
    [
        *(
            BODY.decode().encode(encoding)
            for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32")
        ),
        codecs.BOM_UTF16_LE + f"\n  {BODY.decode()}".encode("utf-16-le"),
        b'{"uuid":"x","a":' + b"[" * 1000 + b"]" * 1000 + b"}",
        rb'{"uuid":"x","a":"\ud800"}',
        b'{"uuid":"x","a":"\xed\xa0\x80"}',
        b'{"uuid":"x"',
        b'{"uuid":"x"}{}',
        b'{"uuid":"x","a":NaN}',
        b'{"uuid":"x","a":-Infinity}',
        b'{"uuid":"x","a":1.}',
        b'{"uuid":"x","a":"\n"}',
        b'{"uuid":"x","a":%b}' % (b"1" * 5000),
    ],
)
def test_json_that_another_parser_might_read_is_refused(body: bytes) -> None:
    seen = call(body)
    assert (seen.status, seen.problem) == (422, "invalid-json")


@pytest.mark.parametrize("coding", [b"gzip", b"identity, gzip", b"br"])
def test_a_compressed_body_is_refused(coding: bytes) -> None:
    seen = call(gzip.compress(BODY), [(b"content-encoding", coding)])
    assert (seen.status, seen.problem) == (415, "unsupported-encoding")


# What has none passes.


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b'"uuid"',
        json.dumps(chat({"type": "image_url", "image_url": {"url": URL}}), indent=1).encode(),
        json.dumps({"text": 'say "uuid": "x", or na\u00efve'}).encode(),
        b'{"a":1,"a":2}',
        b'{"a":',
        b"{" * 5000,
        b'--b\r\nContent-Disposition: form-data; name="uuid"\r\n\r\nx\r\n--b--\r\n',
        b'\0\0\0\x18ftypmp42 "uuid"',
        bytes(range(256)) * 300,
        b'RIFF"uuid"',
    ],
    ids=lambda body: repr(body[:12]),
)
def test_a_body_without_hashes_passes_byte_for_byte(body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode()), (b"x-other", b"kept")]
    for pieces in ([body], [body[:5], body[5:], b""]):
        seen = call(pieces, headers)
        assert seen.body == body
        assert seen.headers == headers


def test_a_refusal_says_which_field_or_header_is_meant() -> None:
    form = (
        b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n{"kv_transfer_params":1}\r\n--b--'
    )
    multipart = (b"content-type", b"multipart/form-data; boundary=b")
    twice = [(b"x-mmhash-tenant", b"a")] * 2
    for seen, name in (
        (ask({}, *twice), "x-mmhash-tenant"),
        (call(form, [multipart]), "kv_transfer_params"),
    ):
        assert name in seen.reason


def test_a_tool_schema_may_have_a_parameter_named_uuid() -> None:
    schema = {"type": "object", "properties": {"uuid": {"type": "string"}}, "required": ["uuid"]}
    request = chat(tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}])
    assert ask(request).request == request


# The guard accepts long bodies within its limits.


def test_a_body_that_is_too_long_is_refused() -> None:
    limit = len(BODY)
    assert call(BODY, max_body_bytes=limit).status == 200
    for body in ([b" " + BODY], [BODY, b" "], [b"x" * (limit + 1)]):
        seen = call(body, max_body_bytes=limit)
        assert (seen.status, seen.problem) == (413, "body-too-large")


def test_too_many_values_or_tags_are_refused() -> None:
    ids = [1] * (MAX_VALUES - 10)
    assert ask({"input_ids": ids, "uuid": "x"}).request == {"input_ids": ids}
    assert ask({"input_ids": [1] * (MAX_VALUES + 1), "uuid": "x"}).problem == "body-too-large"
    assert ask({"input_ids": [1] * (MAX_VALUES + 1)}).status == 200
    assert ask({"mmhash_tags": ["x"] * MAX_TAGS}).request == {}
    assert ask({"mmhash_tags": ["x"] * (MAX_TAGS + 1)}).problem == "body-too-large"


# This application stands in for the engine.


def test_messages_after_the_body_pass() -> None:
    heard: list[str] = []

    async def engine(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "http.disconnect":
            heard.append(message["type"])
        heard.append(message["type"])

    async def run() -> None:
        waiting: list[Message] = [
            {"type": "http.request", "body": BODY},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Message:
            return waiting.pop(0)

        async def send(message: Message) -> None:
            raise AssertionError(message)

        scope = {"type": "http", "path": "/", "headers": []}
        await Guard(engine, engine="vllm", secrets=[NEW.hex()])(scope, receive, send)

    asyncio.run(run())
    assert heard == ["http.request", "http.disconnect"]


@pytest.mark.parametrize(
    ("kind", "reaches"), [("websocket", True), ("lifespan", True), ("http", False)]
)
def test_websockets_and_lifespan_pass_and_a_cut_off_request_does_not(
    kind: str, reaches: bool
) -> None:
    reached: list[str] = []

    async def engine(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["type"])

    async def run() -> None:
        waiting = [{"type": "http.request", "body": b"{", "more_body": True}]

        async def receive() -> Message:
            return waiting.pop(0) if waiting else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            raise AssertionError(message)

        guard = Guard(engine, engine="vllm", secrets=[NEW.hex()])
        await guard({"type": kind, "headers": []}, receive, send)

    asyncio.run(run())
    assert reached == [kind] * reaches
