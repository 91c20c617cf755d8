"""The parsers of untrusted bytes, each as a function of bytes that raises only named errors.

Where it is cheap a target checks more: a round trip, other pieces, or another parser's answer.
"""

import asyncio
import atexit
import base64
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import httpx
from PIL import Image
from safetensors import deserialize

import mmhash
from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash.engines.caller_fields import KINDS
from mmhash.errors import MMHashError, TransportError
from mmhash.image import DAMAGE
from mmhash.kvindex.zmtp import Decoder
from mmhash.prompts.headers import read_size
from mmhash.requests.media_source import decode_data_url
from mmhash.tags import TAGS_MEMBER
from mmhash.transport import handles
from mmhash_service.bodies.parsing import (
    parse_media_type,
)
from mmhash_service.decoder.images import decode_image
from mmhash_service.decoder.messages import Refused
from mmhash_service.decoder.pool import pixels_of
from mmhash_service.fetch.hosts import HostAllowlist
from mmhash_service.fetch.remote import etag_of
from mmhash_service.guard.caller_hashes import strip_unverified_hashes
from mmhash_service.http.app import create_app
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.multipart import MultipartReader
from mmhash_service.items.readers import Reader, StreamReader
from mmhash_service.items.safetensors import SafetensorsReader
from mmhash_service.limits.capacity import MAX_ITEMS, Limits
from mmhash_service.memo.entries import Entry, Fetched, Pixels
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings

# Now, and not at the first image: what is imported later is not instrumented.
Image.init()

# Any other exception is a bug.
ALLOWED: tuple[type[Exception], ...] = (Problem, MMHashError)

Target = Callable[[bytes], None]

TARGETS: dict[str, Target] = {}


def target(function: Target) -> Target:
    """Add a function to `TARGETS`."""
    TARGETS[function.__name__] = function
    return function


def run(name: str, data: bytes) -> None:
    """Give the target those bytes."""
    with suppress(*ALLOWED):
        TARGETS[name](data)


class _Inline:
    """In the place of the threads: an event loop that waits for a thread is a slow fuzzer."""

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    async def run_sized(self, _us: float, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


class _InlineDecoders:
    """In the place of the decoder processes, for the same reason."""

    async def decode(self, body: memoryview, algorithm: Algorithm) -> Pixels:
        answer = decode_image(bytes(body), algorithm, _SETTINGS.max_pixels)
        return pixels_of(answer, algorithm)


_SETTINGS = Settings(max_pixels=10_000, max_held_bytes=16 << 20)
_APP = create_app(_SETTINGS)
_APP.state.resources.work = _Inline()
_APP.state.resources.decoders = _InlineDecoders()
_LOOP = asyncio.new_event_loop()
atexit.register(_LOOP.close)


def _call() -> RequestContext:
    with Limits(_SETTINGS).admit() as admission:
        state = _APP.state.resources
        return RequestContext(
            algorithm="blake3",
            pixels=False,
            engines=(),
            tenant=None,
            signer=None,
            settings=_SETTINGS,
            admission=admission,
            work=state.work,
            prompts=state.prompts,
            decoders=state.decoders,
            memo=state.memo,
            fetcher=state.fetcher,
        )


def _read(reader: Reader, body: bytes, step: int) -> list[HashedItem]:
    for at in range(0, len(body), step):
        reader.take(body[at : at + step])
    return _LOOP.run_until_complete(reader.finish())


def _ask(
    path: str, body: bytes, query: bytes = b"", content_type: bytes = b"application/json"
) -> Any:
    """Return the application's response as JSON; a 5xx is a bug."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": [(b"content-type", content_type)],
        "client": None,
        "server": None,
        "scheme": "http",
        "http_version": "1.1",
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    _LOOP.run_until_complete(_APP(scope, receive, send))
    status = sent[0]["status"]
    answer = json.loads(b"".join(message.get("body", b"") for message in sent))
    assert status == 200 or 400 <= status < 500, (status, answer)
    return answer if status == 200 else None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


@target
def safetensors(data: bytes) -> None:
    items = _read(SafetensorsReader(_call()), data, 1 + len(data) % 37)
    # What is taken here the package takes too, and finds the same bytes.
    found = {item.name: item.digest for item in items}
    assert found == {name: mmhash.digest(of["data"]) for name, of in deserialize(data)}


@target
def multipart(data: bytes) -> None:
    whole, cut = (_try_multipart(data, step) for step in (len(data) + 1, 1 + len(data) % 37))
    assert whole == cut


def _try_multipart(data: bytes, step: int) -> list[HashedItem] | str:
    call = _call()

    def open_part(content_type: str, name: str | None) -> Reader:
        parse_media_type(content_type)
        return StreamReader(call, name)

    reader = MultipartReader(call, "multipart/form-data; boundary=b", open_part)
    try:
        return _read(reader, data, step)
    except Problem as problem:
        return problem.name


@target
def multipart_type(data: bytes) -> None:
    MultipartReader(_call(), data.decode("latin-1"), lambda *_: StreamReader(_call(), None))


@target
def hash_call(data: bytes) -> None:
    """The query, the Content-Type and the body, a line each."""
    query, content_type, body = (*data.split(b"\n", 2), b"", b"")[:3]
    _ask("/hash", body, query, content_type)


@target
def json_items(data: bytes) -> None:
    if (answer := _ask("/hash", data)) is not None:
        assert len(answer["items"]) <= MAX_ITEMS


@target
def pad_body(data: bytes) -> None:
    if (answer := _ask("/pad", data)) is not None:
        assert len(answer["input_ids"]) == len(json.loads(data)["input_ids"])


@target
def blocks_body(data: bytes) -> None:
    if (answer := _ask("/blocks", data)) is not None:
        sent = json.loads(data)
        assert len(answer["blocks"]) <= len(sent["input_ids"])


@target
def annotate_vllm(data: bytes) -> None:
    answer = _ask("/annotate", data, b"engine=vllm")
    if answer is None:
        return
    keys = {item["key"] for item in answer["items"]}
    for part in _parts(answer["request"]):
        assert "uuid" not in part or part["uuid"] in keys
    assert "mmhash_tags" not in answer["request"]


@target
def annotate_sglang(data: bytes) -> None:
    answer = _ask("/annotate", data, b"engine=sglang")
    if answer is None:
        return
    request = answer["request"]
    for part in _parts(request):
        image = part.get("image_url")
        if isinstance(image, dict) and "content_hash" in image:
            assert image["content_hash"].startswith("sha256:")
    # Those of /generate are ours, of chat there are none.
    ours = {item["engines"]["sglang"]["mm_hash"] for item in answer["items"]}
    assert set(_leaves(request.get("mm_hashes"))) <= ours
    assert {"mm_content_hashes", "mmhash_tags"}.isdisjoint(request)


def _parts(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in request.get("messages", ()):
        if isinstance(message.get("content"), list):
            yield from (part for part in message["content"] if isinstance(part, dict))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    elif value is not None:
        yield value


_VOUCHED = {"vouched"}


@target
def guard(data: bytes) -> None:
    written = strip_unverified_hashes(data, lambda _: _VOUCHED)
    body = data if written is None else written
    try:
        # As an engine may read it, all members of an object, also those of one name.
        json.loads(body, object_pairs_hook=_check_members)
    except (ValueError, RecursionError):
        assert written is None  # no JSON, and no engine reads it


def _check_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    holder = dict(pairs)
    for name, value in pairs:
        kind = KINDS.get(name)
        is_object = isinstance(value, dict)
        if kind == "hashes" or (kind == "hash" and not is_object):
            texts = value.values() if is_object else [value]
            assert {
                text for one in texts for text in _leaves(one) if not isinstance(text, dict)
            } <= _VOUCHED
        if kind == "peers" or (kind == "peer" and not is_object):
            assert value is None
    return holder


@target
def guard_rewriting(data: bytes) -> None:
    """The forwarded request is the received one without hashes: fractions as spelled, and nothing else removed."""
    body = b'{"mmhash_tags":[],"a":' + data + b"}"
    try:
        written = strip_unverified_hashes(body, lambda _: _VOUCHED)
    except Problem:
        return
    assert written is not None
    before, after = (
        json.loads(text, parse_float=str, object_pairs_hook=_without_fields)
        for text in (body, written)
    )
    assert before == after
    again = strip_unverified_hashes(written, lambda _: _VOUCHED)
    assert again is None or again == written


def _without_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if name not in KINDS and name != TAGS_MEMBER}


@target
def data_url(data: bytes) -> None:
    content = decode_data_url(_text(data))
    assert decode_data_url(f"data:;base64,{base64.b64encode(content).decode()}") == content


_HOSTS = HostAllowlist(
    ("example.org", "*.example.net:8443", "93.184.216.34", "[2606:2800:220:1::1]")
)


@target
def http_url(data: bytes) -> None:
    text = _text(data)
    url = _HOSTS.allowed(text)
    assert not url.userinfo
    # Readers of URLs must not differ over the host: that is how a check is evaded.
    if text.isascii():
        other = urlsplit(text)
        assert (other.hostname, other.username) == (url.host, None)


@target
def etags(data: bytes) -> None:
    names = [b"ETag", b"Cache-Control", b"Vary"]
    lines = data.split(b"\n")
    etag = etag_of(httpx.Headers(list(zip(names, lines, strict=False))))
    assert etag is None or etag.isascii()


@target
def handle(data: bytes) -> None:
    try:
        sent = json.loads(data)
    except (ValueError, RecursionError):
        return
    transport = "cuda_ipc" if len(data) % 2 else "shm"
    parsed = handles.parse(sent, transport)
    assert handles.parse(parsed.document(), transport) == parsed


@target
def memo_entry(data: bytes) -> None:
    place = Entry("one", Pixels, b"somewhere")
    packed = place.open(data)
    assert packed is None or place.seal(packed) == data
    assert place.open(place.seal(data)) == data
    pixels = Pixels(len(data), len(data), Digest("xxh3", bytes(16)), data, 1 + len(data) % 8)
    assert place.unpack(place.pack(pixels)) == pixels
    other = Entry("other", Fetched, b"somewhere")
    fetched = Fetched(data.decode("latin-1"), len(data), Digest("blake3", bytes(32)))
    assert other.unpack(other.pack(fetched)) == fetched


@target
def image(data: bytes) -> None:
    answer = decode_image(data, "blake3", _SETTINGS.max_pixels)
    assert isinstance(answer, Refused) or answer.frames >= 1


class _WeighedError(Exception):
    """The header is read: a target about headers decodes no pixel."""


@target
def image_headers(data: bytes) -> None:
    """The headers of the six formats, up to the first frame's; limits grow with each frame."""
    met: list[tuple[int, int]] = []

    def grow(frames: int, pixels: int) -> None:
        met.append((frames, pixels))
        raise _WeighedError

    with suppress(_WeighedError):
        answer = decode_image(data, "blake3", 1 << 27, grow)
        assert isinstance(answer, Refused)
    assert len(met) <= 1
    assert all(frames == 1 and 0 <= pixels <= 1 << 27 for frames, pixels in met)


@target
def image_sizes(data: bytes) -> None:
    """The headers that plans read: what Pillow reads too has the same size."""
    header = read_size(data)
    assert 1 <= header.width * header.height <= 178_956_970
    assert 1 <= header.orientation <= 8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(BytesIO(data), formats=(header.format,)) as image:
                size = image.size
        except (*DAMAGE, Image.DecompressionBombError):
            return
    stored = (header.width, header.height)
    # Pillow turns a TIFF by its tag when it opens it, and by its XMP when it loads it.
    assert size in ({header.oriented, stored} if header.format == "TIFF" else {stored})


@target
def zmtp(data: bytes) -> None:
    """The bytes of an engine's connection: the result does not depend on how they are split."""
    assert _decode_zmtp(data, 1 + len(data) % 7) == _decode_zmtp(data, max(1, len(data)))


def _decode_zmtp(data: bytes, step: int) -> tuple[list[list[bytes]], bool, bytes] | None:
    decoder = Decoder(1 << 12)
    messages = []
    try:
        for at in range(0, len(data), step):
            messages += decoder.feed(data[at : at + step])
    except TransportError:
        return None
    assert all(sum(map(len, parts)) <= 1 << 13 for parts in messages)
    return messages, decoder.is_ready, decoder.pongs
