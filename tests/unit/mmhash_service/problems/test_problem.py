"""Wrong requests to each endpoint: the answer has the value that was sent, and what is expected."""

import io
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.app import create_app
from mmhash_service.http.gateway import create_gateway
from mmhash_service.settings import Settings
from tests.live import models
from tests.support.images import data_url, encode
from tests.support.in_process import running

KEY = "0f" * 32
PLAN = "/plan?model=tiny&engine=vllm@0.32.0"
ANNOTATE = "/annotate?engine=vllm@0.32.0"
RENDER = "/v1/chat/completions/render"
CHAT = "/v1/chat/completions"
OCTETS, NPY = "application/octet-stream", "application/x-npy"
MAX_BODY = 1 << 20


def image(size: int = 2) -> bytes:
    return encode(Image.new("RGB", (size, size)))


def chat(*urls: str, **members: Any) -> dict[str, Any]:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = [{"type": "text", "text": "What?"}, *images]
    return {"messages": [{"role": "user", "content": content}], **members}


def blocks(**members: Any) -> dict[str, Any]:
    return {"engine": "vllm@0.32.0", "input_ids": [1, 2], "block_size": 2, **members}


def pad(**members: Any) -> dict[str, Any]:
    return {"engine": "sglang@0.5.23", "input_ids": [1, 2], "spans": [], **members}


def item(**members: Any) -> dict[str, Any]:
    """A list of two items: the second has these members."""
    good = {"kind": "bytes", "data": "YWJj"}
    return {"items": [good, good | members]}


def npy(dtype: str) -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(2, dtype))
    return file.getvalue()


PNG, NO_IMAGE = data_url(image()), data_url(b"no image")
BAD_BASE64 = "data:image/png;base64,a*b="
FTP, HTTPS = "ftp://user:password@a.org/a", "https://a.org/a"
SECOND = "/messages/0/content/2/image_url/url"
FOUR = {"kind": "tensor", "dtype": "uint8", "shape": [4]}
FORM = {"scan": ("scan.png", b"no image", "image/png")}
TOKEN_IDS = {"engine": "vllm@0.32.0", "block_size": 2, "token_ids": [1]}
RANGE, FAR = {"start": 0, "end": 1}, {"start": 0, "end": 9, "key": KEY}
SPAN = [{"start": 0, "end": 1, "key": "abc"}]
PEER = b'{"kv_transfer_params": {}}'
NOBODY, GZIP = {"X-Mmhash-Tenant": "nobody"}, {"Content-Encoding": "gzip"}


class Wrong(NamedTuple):
    """A wrong request, and what its answer has to say."""

    target: str
    body: Any
    problem: str
    said: tuple[str, ...]
    """Texts of the reason: the value that was sent, and the one that is expected."""
    place: str | None = None
    """The pointer, the parameter or the part that the answer names."""
    headers: Mapping[str, str] = {}
    of: str = "service"


def typed(kind: str, target: str, body: Any, problem: str, *said: str, **more: Any) -> Wrong:
    headers = {"Content-Type": kind} | more.pop("headers", {})
    return Wrong(target, body, problem, said, headers=headers, **more)


octets = partial(typed, OCTETS)

KNOWN = ("'sglnag'", "did you mean 'sglang'")
RELEASE = ("9.9.9", "0.32.0")

WRONG = [
    # An engine: one text, whatever the endpoint.
    octets("/hash?engines=sglnag", b"", "unknown-engine", *KNOWN),
    Wrong("/annotate?engine=sglnag", chat(), "unknown-engine", KNOWN),
    Wrong("/plan?model=tiny&engine=sglnag", chat(), "unknown-engine", KNOWN),
    Wrong("/pad", pad(engine="sglnag"), "unknown-engine", KNOWN),
    Wrong("/blocks", blocks(engine="sglnag"), "unknown-engine", KNOWN),
    octets("/hash?engines=vllm@9.9.9", b"", "unknown-engine", *RELEASE),
    Wrong("/blocks", blocks(engine="vllm@9.9.9"), "unknown-engine", RELEASE),
    Wrong("/plan?model=tiny&engine=vllm@9.9.9", chat(), "unknown-engine", RELEASE),
    Wrong("/pad", pad(engine="vllm@0.32.0"), "refused-by-engine", ("vllm", "sglang")),
    Wrong("/blocks", blocks(engine="trtllm"), "refused-by-engine", ("trtllm", "vllm")),
    Wrong(
        "/plan?model=tiny&engine=dynamo", chat(), "refused-by-engine", ("dynamo", "vllm", "runs")
    ),
    Wrong("/annotate?engine=vllm,sglang", chat(), "invalid-query", ("'vllm,sglang'", "one engine")),
    # The query and the headers.
    octets("/hash?engine=vllm", b"", "invalid-query", "'engine'", "'engines'"),
    Wrong("/annotate?engines=vllm", chat(), "invalid-query", ("'engines'", "'engine'")),
    octets("/hash?of=pixel", b"", "invalid-query", "'pixel'", "'pixels'", place="of"),
    octets("/hash?algorithm=sha256", b"", "invalid-query", "'sha256'", "xxh3", place="algorithm"),
    octets("/hash?of=pixels", b"", "invalid-query", OCTETS, "image/*"),
    Wrong(f"{PLAN}&block_size=0", chat(), "invalid-query", ("'0'", "1"), "block_size"),
    Wrong(f"{PLAN}&path=/v1/chat", chat(), "invalid-query", ("'/v1/chat'", "/v1/chat/c"), "path"),
    Wrong("/plan?model=tniy&engine=vllm", chat(), "unknown-model", ("'tniy'", "'tiny'")),
    Wrong("/route?engine=vllm", chat(), "invalid-query", ("'engine'", "path")),
    typed("text/plain", "/hash", b"", "unsupported-media-type", "'text/plain'", OCTETS),
    typed("text/plain", PLAN, b"", "unsupported-media-type", "'text/plain'", "application/json"),
    octets("/hash", b"", "unknown-tenant", "'nobody'", headers=NOBODY),
    octets("/hash", bytes(MAX_BODY + 1), "body-too-large", f"{MAX_BODY + 1}", f"{MAX_BODY}"),
    # A tensor.
    octets("/hash?dtype=fp16&shape=2", b"1234", "invalid-tensor", "'fp16'", "float16"),
    octets("/hash?dtype=float16&shape=2,x", b"1234", "invalid-tensor", "'2,x'", "1,3,224,224"),
    octets("/hash?dtype=float16&shape=2,2", b"1234", "invalid-tensor", "4 bytes", "8"),
    octets("/hash?dtype=float16", b"1234", "invalid-tensor", "dtype='float16'", "shape"),
    typed(NPY, "/hash", npy("datetime64[s]"), "invalid-tensor", "datetime64", "float32"),
    typed(NPY, "/hash", b"not npy", "invalid-tensor", "b'not np'", "NUMPY"),
    # Items of a list, and parts of a form.
    Wrong("/hash", item(data="a*b="), "invalid-base64", ("'*'", "base64"), "/items/1/data"),
    Wrong("/hash", item(data="YWJ"), "invalid-base64", ("has 3", "multiple of 4"), "/items/1/data"),
    Wrong("/hash", item(data=None), "invalid-json", ("has none", "data, url"), "/items/1"),
    Wrong("/hash", item(kind="picture"), "invalid-json", ("'picture'", "'image'"), "/items/1/kind"),
    Wrong("/hash", item(data=None, url=FTP), "invalid-url", ("'ftp://a.org'",), "/items/1/url"),
    Wrong("/hash", item(data=None, url=HTTPS), "url-off", ("a.org", "url_hosts"), "/items/1/url"),
    Wrong("/hash", item(**FOUR), "invalid-tensor", ("3 bytes", "need 4"), "/items/1/data"),
    Wrong("/hash?of=pixels", FORM, "damaged-media", ("8 bytes", "PNG"), "scan.png"),
    typed("image/png", "/hash?of=pixels", image(65), "media-too-large", "4225", "4096"),
    # /blocks and /pad.
    Wrong("/blocks", TOKEN_IDS, "invalid-json", ("'token_ids'", "'input_ids'")),
    Wrong("/blocks", blocks(algorithm="sha256"), "invalid-json", ("'algorithm'", "'block_algo")),
    Wrong("/blocks", blocks(block_size="16"), "invalid-json", ("'16' is a string",), "/block_size"),
    Wrong("/blocks", blocks(block_algorithm="md5"), "invalid-json", ("'md5'", "'sha256'")),
    Wrong("/blocks", blocks(spans=SPAN), "invalid-json", ("'abc'", "POST /hash"), "/spans/0/key"),
    Wrong(
        "/blocks",
        blocks(extra_key="a"),
        "refused-by-engine",
        ("vllm 0.32.0", "extra_key", "cache_salt"),
    ),
    Wrong("/blocks", b"{", "invalid-json", ("not JSON", "EOF")),
    Wrong("/pad", pad(spans=[RANGE]), "invalid-json", ("neither", "POST /hash"), "/spans/0"),
    Wrong("/pad", pad(spans=[FAR]), "refused-by-engine", ("9", "2 input_ids"), "/spans/0/end"),
    Wrong("/pad", pad(input_ids=[1, -2]), "invalid-json", ("-2", "at least 0"), "/input_ids/1"),
    # A request for an engine.
    Wrong(PLAN, b"", "invalid-json", ("empty", "JSON object", "messages")),
    Wrong(PLAN, b"{'messages': []}", "invalid-json", ("byte 1", "double quotes")),
    Wrong(PLAN, [1], "invalid-json", ("a list", "JSON object", "messages")),
    Wrong(PLAN, {"foo": 1}, "invalid-json", ("'foo'", "messages")),
    Wrong(PLAN, {"messages": []}, "invalid-json", ("[]", "one message"), "/messages"),
    Wrong(PLAN, {"messages": "Hi"}, "invalid-json", ("a text", "a list"), "/messages"),
    Wrong(PLAN, chat(PNG, NO_IMAGE), "unplannable-item", ("8 bytes", "PNG"), SECOND),
    Wrong(PLAN, chat(PNG, BAD_BASE64), "invalid-base64", ("'*'", "base64"), SECOND),
    Wrong(PLAN, chat(PNG, "data:image/png"), "invalid-url", ("comma", "data:image/png;"), SECOND),
    Wrong(PLAN, chat(PNG, HTTPS), "url-off", ("a.org", "url_hosts"), SECOND),
    Wrong(ANNOTATE, b"{", "invalid-json", ("truncated", "JSON object")),
    Wrong(ANNOTATE, {"foo": 1}, "invalid-json", ("'foo'", "messages")),
    Wrong(ANNOTATE, {"prompt": "Hi"}, "no-field", ("completions", "engine unchanged")),
    Wrong(ANNOTATE, chat(PNG, BAD_BASE64), "invalid-base64", ("'*'", "base64"), SECOND),
    Wrong(ANNOTATE, chat(PNG, FTP), "invalid-url", ("'ftp://a.org'",), SECOND),
    Wrong("/route", b"", "invalid-json", ("empty", "JSON object", "messages")),
    # As vLLM's render server answers.
    Wrong(RENDER, chat(model="tniy"), "", ("tniy", "tiny")),
    Wrong(RENDER, {"messages": []}, "", ("messages", "one message")),
    Wrong(RENDER, chat(PNG, NO_IMAGE), "", ("8 bytes", "PNG", SECOND)),
    Wrong(RENDER, chat(temperature="hot"), "", ("temperature", "'hot'", "number")),
    Wrong("/tokenize", {"text": "Hi"}, "", ("'text'", "prompt", "messages")),
    # The gateway.
    Wrong(CHAT, chat(), "unknown-tenant", ("'nobody'",), headers=NOBODY, of="gateway"),
    Wrong(CHAT, chat(), "unsupported-encoding", ("'gzip'",), headers=GZIP, of="gateway"),
    typed(
        "multipart/form-data",
        CHAT,
        PEER,
        "named-peer",
        "kv_transfer_params",
        "application/json",
        of="gateway",
    ),
]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, httpx.Client]]:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    models.write("qwen2_vl", folder)
    settings = Settings(
        models={"tiny": folder},
        tenants={"acme": "11" * 32},
        decoders=1,
        max_pixels=4096,
        max_body_bytes=MAX_BODY,
    )
    gateway = GatewaySettings(worker_list=["http://127.0.0.1:9"], health_timeout_s=0.1)
    with (
        running(create_app(settings, gateway)) as service,
        TestClient(create_gateway(settings, gateway)) as proxy,
    ):
        yield {"service": service.client, "gateway": proxy}


def send(clients: dict[str, httpx.Client], wrong: Wrong) -> httpx.Response:
    body, headers = wrong.body, wrong.headers
    if isinstance(body, dict) and all(isinstance(one, tuple) for one in body.values()):
        return clients[wrong.of].post(wrong.target, files=body)
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return clients[wrong.of].post(
        wrong.target, content=body, headers={"Content-Type": "application/json"} | headers
    )


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: f"{one.target}: {one.said[0]}")
def test_a_caller_can_mend_the_request(clients: dict[str, httpx.Client], wrong: Wrong) -> None:
    answer = send(clients, wrong).json()
    if wrong.problem:
        assert answer["type"] == f"urn:mmhash:problem:{wrong.problem}"
        reason = answer["reason"]
    else:
        reason = answer["error"]["message"]
    assert [text for text in wrong.said if text not in reason] == [], reason
    assert reason in answer["error"]["message"]
    assert "password" not in reason
    if wrong.place is not None:
        places = [set(error.values()) for error in answer["errors"]]
        assert any(wrong.place in place for place in places), answer["errors"]
