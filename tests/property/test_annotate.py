"""Whatever a request holds, an annotated one means the same but for the hashes put in."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mmhash
from mmhash.engines import sglang
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.in_process import start_decoders_late

SUPPRESSED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


class Number(NamedTuple):
    """A number by its spelling: 1, 1.0 and 1e0 are three."""

    text: str


class Members(tuple[tuple[str, Any], ...]):
    """The members of an object in their order, of one name too."""


class Image(Members):
    """An object with an image, which is to get a hash."""

    content: bytes


def render(value: Any) -> str:
    match value:
        case Number():
            return value.text
        case Members():
            inner = (f"{json.dumps(name)} : {render(of)}" for name, of in value)
            return f"{{ {','.join(inner)}\n}}"
        case list():
            return f"[{', '.join(map(render, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=len(value) % 2 == 0)
    return json.dumps(value)


def read(text: str | bytes) -> Any:
    return json.loads(
        text,
        parse_int=Number,
        parse_float=Number,
        object_pairs_hook=lambda pairs: Members((name, of) for name, of in pairs),
    )


def opened(value: Members) -> dict[str, Any]:
    """An object on the way to the media; one with two members of one name is refused."""
    return dict(value)


def once(value: Any) -> Any:
    """An object with the first of its members of each name."""
    if not isinstance(value, Members):
        return value
    return Members({name: dict(reversed(value))[name] for name, _ in value}.items())


numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?", fullmatch=True
).map(Number)
names = st.one_of(
    st.text(max_size=9).map(lambda text: f"x{text}"),
    st.sampled_from(["text", "name", "detail", "uuid", "content_hash", "mm_hashes"]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(st.tuples(names, inner), max_size=4).map(Members).map(once),
    ),
    max_leaves=8,
)
rests = st.lists(st.tuples(names, values), max_size=4)
contents = st.binary(min_size=1, max_size=40)


def text_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


@st.composite
def images(draw: st.DrawFn) -> Image:
    content = draw(contents)
    url = [("url", f"data:image/png;base64,{text_of(content)}"), *draw(rests)]
    part = [
        ("type", "image_url"),
        ("image_url", Members(draw(st.permutations(once(Members(url)))))),
        *draw(rests),
    ]
    image = Image(draw(st.permutations(once(Members(part)))))
    image.content = content
    return image


parts = st.one_of(images(), rests.map(Members).map(once), values.map(once))
messages = st.tuples(
    rests, st.one_of(st.lists(parts, max_size=5), st.text(max_size=20), st.none()), rests
).map(lambda drawn: once(Members([*drawn[0], ("content", drawn[1]), *drawn[2]])))
chats = st.tuples(rests, st.lists(messages, min_size=1, max_size=4), rests).map(
    lambda drawn: once(Members([*drawn[0], ("messages", drawn[1]), *drawn[2]]))
)


Annotate = Callable[[str, Members], Any]


@pytest.fixture(scope="module")
def annotate() -> Iterator[Annotate]:
    """Have a request annotated for an engine, straight by the app."""
    app = create_app(Settings())
    start_decoders_late(app)
    stack = AsyncExitStack()

    async def start() -> httpx.AsyncClient:
        await stack.enter_async_context(app.router.lifespan_context(app))
        transport = httpx.ASGITransport(app)
        return await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://app")
        )

    with asyncio.Runner() as runner:
        client = runner.run(start())

        def annotate(engine: str, body: Members) -> Any:
            answer = runner.run(
                client.post(
                    f"/annotate?engine={engine}",
                    content=render(body).encode(),
                    headers={"Content-Type": "application/json"},
                )
            )
            assert answer.status_code == 200, answer.text
            return dict(read(answer.content))["request"]

        yield annotate
        runner.run(stack.aclose())


def without_hashes(engine: str, request: Members) -> Any:
    """The request with no engine's hash in it, neither a caller's nor ours."""
    body = opened(request)
    if engine == "sglang":
        body.pop("mm_hashes", None)
    body["messages"] = [opened(message) for message in body.get("messages", [])]
    for message in body["messages"]:
        if isinstance(message["content"], list):
            message["content"] = [_bare_part(engine, part) for part in message["content"]]
    return list_of(body)


def _bare_part(engine: str, part: Any) -> Any:
    if not isinstance(part, Members):
        return part
    bare = opened(part)
    if engine == "vllm":
        bare.pop("uuid", None)
    elif isinstance(bare.get("image_url"), Members):
        bare["image_url"] = opened(bare["image_url"])
        bare["image_url"].pop("content_hash", None)
    return bare


def list_of(value: Any) -> Any:
    """Objects as lists of members, so that their order counts."""
    if isinstance(value, dict):
        return [(name, list_of(of)) for name, of in value.items()]
    return [list_of(of) for of in value] if type(value) is list else value


def hashes_in(engine: str, request: Members) -> list[str]:
    every = [
        opened(part)
        for message in opened(request)["messages"]
        if isinstance(opened(message)["content"], list)
        for part in opened(message)["content"]
        if isinstance(part, Members)
    ]
    if engine == "vllm":
        return [part["uuid"] for part in every if "uuid" in part]
    inner = [opened(part["image_url"]) for part in every if "image_url" in part]
    return [image["content_hash"] for image in inner if "content_hash" in image]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@given(chat=chats)
@settings(deadline=None, suppress_health_check=SUPPRESSED)
def test_a_chat_request_is_the_same_once_the_hashes_are_taken_out(
    annotate: Annotate, engine: str, chat: Members
) -> None:
    annotated = annotate(engine, chat)
    assert without_hashes(engine, annotated) == without_hashes(engine, chat)
    contents = [
        part.content
        for message in opened(chat)["messages"]
        if isinstance(opened(message)["content"], list)
        for part in opened(message)["content"]
        if isinstance(part, Image)
    ]
    assert hashes_in(engine, annotated) == [
        mmhash.key(content).hex()
        if engine == "vllm"
        else f"sha256:{hashlib.sha256(content).hexdigest()}"
        for content in contents
    ]


@given(before=rests, batch=st.lists(st.lists(contents, max_size=4), max_size=4), after=rests)
@settings(deadline=None, suppress_health_check=SUPPRESSED)
def test_a_generate_request_is_the_same_once_the_hashes_are_taken_out(
    annotate: Annotate,
    before: list[tuple[str, Any]],
    batch: list[list[bytes]],
    after: list[tuple[str, Any]],
) -> None:
    image_data = [[text_of(content) for content in prompt] for prompt in batch]
    own = [("text", ["?"] * len(batch)), ("image_data", image_data)]
    others = [pair for pair in (*before, *after) if pair[0] != "text"]
    body = once(Members([*others[: len(before)], *own, *others[len(before) :]]))
    annotated = opened(annotate("sglang", body))
    found = annotated.pop("mm_hashes", None)
    expected = opened(body)
    expected.pop("mm_hashes", None)
    assert list(annotated.items()) == list(expected.items())
    wanted = [[sglang.mm_hash(mmhash.key(content)) for content in prompt] for prompt in batch]
    assert found == (wanted if any(batch) else None)
