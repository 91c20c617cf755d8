"""Fields, headers and forms that carry a hash past the guard, or name a peer.

One table has the fields of all known releases. The guard removes those that name a hash or a peer.
"""

import json
import time
from typing import Any

import pytest

import mmhash
from mmhash.engines import sglang, vllm
from mmhash.engines.caller_fields import KINDS, MEDIA, PEER_HEADERS, kinds_of
from mmhash.engines.engine import CallerField
from mmhash.engines.registry import ENGINES
from tests.support.guarded import through_guard

SECRET = bytes(32)
KEY = mmhash.key(b"a picture")
FORGED = "f0" * 32
FIELDS = [field for engine in ENGINES for field in engine.caller_fields]


def through(
    body: Any, headers: dict[str, str] | None = None, *, engine: str = "sglang", **settings: Any
) -> tuple[int, bytes, dict[str, str]]:
    """The status, and the body and headers that the engine behind the guard receives."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    pairs = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    seen = through_guard(raw, pairs, engine=engine, secrets=[SECRET.hex()], **settings)
    received = {name.decode(): value.decode() for name, value in seen.headers}
    return seen.status, seen.body, received


def tagged(request: dict[str, Any], engine: str) -> dict[str, Any]:
    expires = int(time.time()) + 60
    tag = mmhash.sign_tag(KEY, engine=engine, tenant=None, expires=expires, secrets=[SECRET])
    return request | {"mmhash_tags": [tag]}


FEATURES = {"feature": [[0.5, 1e400]], "hash": 7, "pad_value": 1_000_007, "identity": "x"}
LEFT = {"feature": [[0.5, 1.0]]}


@pytest.mark.parametrize("where", sorted(MEDIA))
@pytest.mark.parametrize(
    "format_", ["processor_output", "PROCESSOR_OUTPUT", "precomputed_embedding", None]
)
@pytest.mark.parametrize("shape", ["%s", "[%s]", "[[%s]]", "[[],[%s,null]]"])
def test_features_of_a_caller_have_no_hash_of_their_own(
    where: str, format_: str | None, shape: str
) -> None:
    item = {**LEFT, "format": format_, "modality": "IMAGE"}
    for claim in (
        {"hash": 7},
        {"hash": "7", "pad_value": 1},
        {"pad_values": [1, 2]},
        {"identity": FORGED},
    ):
        body = f'{{"text":"a","{where}":{shape % json.dumps(item | claim)}}}'
        status, seen, _ = through(body.encode())
        assert (status, json.loads(seen)) == (
            200,
            json.loads(body.replace(json.dumps(item | claim), json.dumps(item))),
        )


@pytest.mark.parametrize(
    "request_",
    [
        {"instances": [{"text": "a", "image_data": FEATURES}]},
        {"instances": [{"text": "a"}], "parameters": {"image_data": [FEATURES]}},
        {"requests": [{"mm_items": [FEATURES]}]},
        {"messages": [{"content": [{"image_url": FEATURES | {"format": "processor_output"}}]}]},
    ],
)
def test_features_lose_their_hash_wherever_they_are(request_: Any) -> None:
    status, seen, _ = through(json.dumps(request_).replace("Infinity", "1e400").encode())
    assert status == 200
    for name in ("hash", "pad_value", "identity"):
        assert b'"%b"' % name.encode() not in seen
    assert b"[0.5,1e400]" in seen


def test_a_hash_of_features_may_be_a_tagged_one_as_a_number() -> None:
    image = {"format": "processor_output", "hash": KEY.u64}
    request = {"text": "a", "image_data": [image]}
    assert json.loads(through(tagged(request, "sglang"))[1]) == request
    for other in (
        str(KEY.u64),
        sglang.mm_hash(KEY),
        float(KEY.u64),
        -KEY.u64,
        KEY.u64 + 2**64,
        True,
    ):
        request["image_data"] = [image | {"hash": other}]
        seen = json.loads(through(tagged(request, "sglang"))[1])
        assert seen["image_data"] == [{"format": "processor_output"}]


def test_the_same_name_elsewhere_is_no_hash() -> None:
    for request in (
        {"metadata": {"hash": "of a commit", "identity": "me"}, "text": "a"},
        {"tools": [{"parameters": {"properties": {"hash": {"type": "string"}, "lora_id": {}}}}]},
        {"hashes": ["sha256"], "text": "a"},
    ):
        status, seen, _ = through(request)
        assert (status, json.loads(seen)) == (200, request)


def test_an_encoder_s_hashes_need_tags() -> None:
    request = {"mm_items": ["a"], "hashes": [sglang.mm_hash(KEY)], "req_id": "r"}
    assert "hashes" not in json.loads(through(request)[1])
    assert json.loads(through(tagged(request, "sglang"))[1]) == request
    assert "hashes" not in json.loads(through(request | {"hashes": [7]})[1])


VALUES: list[Any] = ["peer:1", 7, ["peer:1"], [None, 7], True, "", 1.5]
PEERS = [name for name, kind in KINDS.items() if kind in {"peer", "peers"}]


@pytest.mark.parametrize("name", PEERS)
def test_no_field_that_names_a_peer_passes(name: str) -> None:
    objects = (
        [{FORGED: {"peer_host": "10.0.0.9", "peer_port": 1}}] if KINDS[name] == "peers" else []
    )
    for value in [*VALUES, *objects]:
        for request, left in (
            ({"a": 1, name: value}, {"a": 1}),
            ({"parameters": {name: value}}, {"parameters": {}}),
            (
                {"sampling_params": {"extra_args": {name: value}}},
                {"sampling_params": {"extra_args": {}}},
            ),
            ({"vllm_xargs": {name: value, "b": 1}}, {"vllm_xargs": {"b": 1}}),
            ([{name: value}], [{}]),
        ):
            status, seen, _ = through(request, engine="vllm")
            assert (status, json.loads(seen)) == (200, left)
            status, seen, _ = through(request, engine="vllm", allow_peers=True)
            assert (status, json.loads(seen)) == (200, request)


def test_no_name_of_a_hash_hides_in_the_names_of_members() -> None:
    request = tagged({"ec_transfer_params": {vllm.uuid(KEY): {"peer_host": "10.0.0.9"}}}, "vllm")
    assert json.loads(through(request, engine="vllm")[1]) == {}


@pytest.mark.parametrize("name", sorted(PEER_HEADERS))
@pytest.mark.parametrize("spell", [str, str.upper, str.title])
def test_no_header_names_a_peer(name: str, spell: Any) -> None:
    given = {spell(name): "10.0.0.9", "x-override-rid": "r"}
    for body in (b'{"a":1}', b""):
        assert through(body, given)[2] == {"x-override-rid": "r"}
        assert through(body, given, allow_peers=True)[2] == given


def test_no_engine_unpacks_what_the_guard_has_not_read() -> None:
    for coding in ("zstd", "gzip", "identity, zstd"):
        assert through(b"(\xb5/\xfd", {"x-body-compressed": coding})[0] == 415


def form(value: str, charset: str = "") -> tuple[bytes, dict[str, str]]:
    parts = [("model", "whisper"), ("vllm_xargs", value)]
    body = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
        for name, text in parts
    )
    return f"{body}--b--\r\n".encode(), {
        "content-type": f"multipart/form-data; boundary=b{charset}"
    }


def test_no_form_names_a_peer() -> None:
    for name in ("kv_transfer_params", "ec_transfer_params", "ec_transfer_p\\u0061rams"):
        body, headers = form(f'{{"{name}": {{"{FORGED}": 1}}}}')
        assert through(body, headers, engine="vllm")[0] == 403
        assert through(body, headers, engine="vllm", allow_peers=True)[1] == body
    body, headers = form('{"temperature": 1.0}')
    assert through(body, headers, engine="vllm")[1] == body


@pytest.mark.parametrize(
    "parameters",
    [
        "; charset=utf-16",
        "; charset=utf-7",
        "; CHARSET = utf-7",
        "; charset=utf-8; charset=utf-7",
        "; charset=utf-7; charset=utf-8",
        "; xcharset=utf-8; charset=utf-7",
        '; a="charset=utf-8"; charset=utf-7',
        "; charset=utf-8x; charset=utf-7",
        '; charset="utf-8"x; charset=utf-7',
        "; charset*=us-ascii''utf-7",
        "; charset*0=utf; charset*1=-7",
        "; charset=utf-8; charset*=us-ascii''utf-7",
        "; charset=unicode_escape",
        '; charset="utf\\-7"',
    ],
)
def test_a_form_has_one_charset_that_is_utf_8(parameters: str) -> None:
    """The form's parser takes the last of them, and finds other names in the same bytes."""
    body, headers = form('{"kv+AF8-transfer+AF8-params": {}}', parameters)
    assert through(body, headers, engine="vllm") == (415, b"", {})


@pytest.mark.parametrize("charset", ["utf-8", "UTF-8", '"utf-8"', "utf8", "us-ascii"])
def test_a_form_may_say_that_it_is_utf_8(charset: str) -> None:
    body, headers = form('{"temperature": 1.0}', f"; charset={charset}")
    assert through(body, headers, engine="vllm")[1] == body


OBJECTS = {"image_url": {"url": "https://p.example/1.png"}, "uuid": {"a": 1}}


def test_an_object_as_uuid_is_a_text_to_an_engine() -> None:
    for part in (OBJECTS, OBJECTS | {"type": "image_url"}, {"type": "image_url", "uuid": {}}):
        (seen,) = json.loads(through({"content_parts": [part]}, engine="vllm")[1])["content_parts"]
        assert "uuid" not in seen


@pytest.mark.parametrize("name", ["cache_salt", "extra_key", "lora_path", "request_id"])
def test_a_field_that_only_chooses_a_namespace_passes(name: str) -> None:
    status, seen, _ = through({name: "x", "text": "a"})
    assert (status, json.loads(seen)) == (200, {name: "x", "text": "a"})


def test_no_engine_weakens_a_field_of_another() -> None:
    mm_hashes = CallerField("mm_hashes", "peer", "all", "", "")
    with pytest.raises(mmhash.MMHashError):
        kinds_of([*FIELDS, mm_hashes])
