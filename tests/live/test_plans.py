"""Plans prompts before sending them, and compares ids and block names with the engine's.

Qwen2-VL runs on each engine of `make live`. The other families start an engine each, and are slow.
"""

import base64
import io
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

import mmhash
from mmhash.errors import InputValueError
from mmhash.kvindex.table import block_ids
from mmhash.prompts import Media, MediaSize, Model, Plan, UnknownModelError
from tests.live import prompts, results
from tests.live.engines import Engine, running
from tests.live.environments import CACHE, Environment
from tests.live.prompts import IMAGE_TEXT
from tests.live.tiny import TINY
from tests.support.origin import Origin

# The guard would remove these hashes, which have no tags.
WITHOUT_GUARD = True

# `make live` must end within minutes. `pytest -m live` runs these too.
pytestmark = pytest.mark.slow

SERVED_BY = (("vllm", "0.32.0"), ("sglang", "0.5.23"))

# An engine serves these, but plans refuse: SGLang's device decides if it turns GLM-4V's JPEGs.
UNPLANNED = {("sglang", "glm4v", "rotated")}

_ORIENTATION = 0x112


class Item(NamedTuple):
    """An image or video of a prompt."""

    url: str
    known: Media | None = None
    """The item's size and key, if the item is behind an http URL."""
    kind: str = "image"


class Message(NamedTuple):
    """A message of a chat, with texts and media."""

    role: str
    parts: tuple[str | Item, ...]


class Case(NamedTuple):
    """A chat, and the other members of its request."""

    messages: tuple[Message, ...]
    members: dict[str, Any]

    @property
    def items(self) -> list[Item]:
        """Return the media in the order of the prompt."""
        return [part for one in self.messages for part in one.parts if isinstance(part, Item)]


def picture(
    width: int, height: int, format_: str = "PNG", *, orientation: int | None = None
) -> Item:
    """Return a random image as a data: URL."""
    data = _encode(width, height, format_, orientation)
    return Item(prompts.data_url(data, format_))


def _encode(width: int, height: int, format_: str, orientation: int | None = None) -> bytes:
    pixels = np.random.default_rng().integers(0, 256, (height, width, 3), np.uint8)
    made = Image.fromarray(pixels)
    options: dict[str, Any] = {}
    if orientation is not None:
        exif = Image.Exif()
        exif[_ORIENTATION] = orientation
        options["exif"] = exif
    buffer = io.BytesIO()
    made.save(buffer, format_, **options)
    return buffer.getvalue()


def behind_url(origin: Origin, width: int, height: int) -> Item:
    """Return a random image that the origin serves."""
    data = _encode(width, height, "JPEG")
    path = f"/{secrets.token_hex(4)}.jpg"
    origin.answers[path] = Origin.ok(data, "Content-Type: image/jpeg")
    known = Media(MediaSize(width=width, height=height), mmhash.key(data))
    return Item(f"http://127.0.0.1:{origin.port}{path}", known)


def video(frames: int, width: int, height: int) -> Item:
    """Return a random video in the form of frames, which need no decoder."""
    files = [_encode(width, height, "JPEG") for _ in range(frames)]
    url = f"data:video/jpeg;base64,{','.join(base64.b64encode(one).decode() for one in files)}"
    return Item(url, kind="video")


def _user(*parts: str | Item, **members: Any) -> Case:
    return Case((Message("user", parts),), members)


def _text() -> str:
    return f"{secrets.token_hex(50)} \u65e5\u672c {secrets.token_hex(4)}"


_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}

TEXTS: dict[str, Callable[[Origin], Case]] = {
    "text": lambda _: _user(_text()),
    "system and turns": lambda _: Case(
        (
            Message("system", (_text(),)),
            Message("user", (_text(),)),
            Message("assistant", (_text(),)),
            Message("user", (_text(),)),
        ),
        {},
    ),
}

IMAGES: dict[str, Callable[[Origin], Case]] = {
    "tools": lambda _: _user(_text(), picture(90, 60), tools=[_TOOL], tool_choice="none"),
    "system": lambda _: Case(
        (Message("system", (_text(),)), Message("user", (picture(200, 300), _text()))), {}
    ),
    "one": lambda _: _user(picture(320, 240), _text()),
    "last": lambda _: _user(_text(), picture(224, 224)),
    "several": lambda _: _user(
        picture(300, 200), _text(), picture(64, 640), picture(501, 333), _text()
    ),
    "adjacent": lambda _: _user(picture(120, 120), picture(120, 120), _text()),
    "turns": lambda _: Case(
        (
            Message("user", (picture(640, 480), _text())),
            Message("assistant", (_text(),)),
            Message("user", (_text(), picture(97, 211))),
        ),
        {},
    ),
    "pixel": lambda _: _user(picture(1, 1), _text()),
    "wide": lambda _: _user(picture(900, 11), _text()),
    "high": lambda _: _user(picture(13, 900), _text()),
    "line": lambda _: _user(picture(1203, 2), _text()),
    "large": lambda _: _user(picture(1600, 1203), _text()),
    "rotated": lambda _: _user(picture(400, 150, "JPEG", orientation=6), _text()),
    "formats": lambda _: _user(
        picture(150, 100, "WEBP"), picture(150, 260, "GIF"), picture(30, 40, "BMP"), _text()
    ),
    "url": lambda origin: _user(behind_url(origin, 333, 444), _text(), behind_url(origin, 50, 60)),
}

VIDEOS: dict[str, Callable[[Origin], Case]] = {
    "video": lambda _: _user(video(4, 112, 112), _text()),
    "odd video": lambda _: _user(_text(), video(3, 200, 100)),
    "frame": lambda _: _user(video(1, 64, 300), _text()),
    "videos": lambda _: _user(video(2, 97, 83), _text(), video(5, 60, 120), _text()),
}

CASES = {"image": IMAGES, "video": VIDEOS}


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    with closing(Origin()) as origin:
        yield origin


class Served(NamedTuple):
    """An engine with the model of a family."""

    engine: Engine
    family: str


@pytest.fixture(
    scope="module",
    params=product(SERVED_BY, TINY),
    ids=lambda given: f"{given[0][0]}@{given[0][1]}-{given[1]}",
)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    (engine, release), family = request.param
    environment = Environment(engine, release)
    environment.build_or_skip()
    try:
        Model.load(environment.model(family)).family(engine, release)
    except UnknownModelError as error:
        results.record("plans", family, environment.spelling, "no plans")
        pytest.skip(str(error))
    log = tmp_path_factory.mktemp("engine") / "log"
    try:
        options = _OPTIONS[engine]
        with running(environment, family, *options, log=log) as started:
            yield Served(started, family)
    finally:
        if log.exists():
            kept = CACHE / "logs" / f"{environment.spelling}-{family}.log"
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(log.read_bytes())


_OPTIONS = {
    "vllm": (
        *(
            "--max-model-len",
            "8192",
            "--limit-mm-per-prompt",
            '{"image": 8, "video": 2, "audio": 2}',
        ),
        "--skip-mm-profiling",
    ),
    "sglang": ("--load-format", "dummy", "--context-length", "8192", "--enable-multimodal"),
}


def test_qwen2_vl(engine: Engine, origin: Origin) -> None:
    """Plans of Qwen2-VL are right for each release."""
    _check(engine, "qwen2_vl", origin)


@pytest.mark.slow
def test_family(served: Served, origin: Origin) -> None:
    """Plans of the other families are right."""
    _check(served.engine, served.family, origin)


class Tally:
    """How many prompts and blocks of a family the engine has as planned."""

    def __init__(self) -> None:
        self.equal = self.sent = self.named = self.stored = self.refused = self.unplanned = 0
        self.differences: list[str] = []

    def __str__(self) -> str:
        cell = f"{self.equal}/{self.sent}, {self.named}/{self.stored}"
        cell += f", {self.refused} refused" if self.refused else ""
        return cell + (f", {self.unplanned} not planned" if self.unplanned else "")


def _check(engine: Engine, family: str, origin: Origin) -> None:
    model = Model.load(engine.environment.model(family))
    image = TINY[family].image if family in TINY else IMAGE_TEXT
    kinds = TINY[family].kinds if family in TINY else ("image", "video")
    if engine.name == "sglang":  # plans for SGLang know no other hashes
        kinds = tuple(kind for kind in kinds if kind == "image")
    cases = TEXTS | {name: make for kind in kinds for name, make in CASES[kind].items()}
    tally = Tally()
    for name, make in cases.items():
        for route in _ROUTES[engine.name]:
            case = make(origin)
            if engine.name == "sglang" and "tools" in case.members:
                continue  # plans refuse these
            request = _request(route, case, image)
            if (engine.name, family, name) in UNPLANNED:
                with pytest.raises(InputValueError):
                    _plan(engine, model, request, case)
                tally.unplanned += 1
                continue
            _compare(engine, model, f"{name} ({route})", (route, request, case), tally)
    results.record("plans", family, engine.spelling, str(tally))
    assert not tally.differences, "\n".join(tally.differences)
    assert tally.sent >= len(cases) // 2
    assert tally.stored > 0


_ROUTES = {
    "vllm": ("/v1/chat/completions",),
    "sglang": ("/generate", "/v1/chat/completions"),
}


def _request(route: str, case: Case, image: str) -> dict[str, Any]:
    if route == "/generate":
        texts = [
            image if isinstance(part, Item) else part for one in case.messages for part in one.parts
        ]
        body: dict[str, Any] = {
            "text": "".join(texts),
            "sampling_params": {"max_new_tokens": 1},
            "return_prompt_token_ids": True,
        }
        if case.items:
            body["image_data"] = [one.url for one in case.items]
        return body
    messages = [
        {"role": one.role, "content": [_part(part) for part in one.parts]} for one in case.messages
    ]
    options = {"model": "tiny", "max_tokens": 1, "return_token_ids": True}
    return {**options, "messages": messages, **case.members}


def _part(part: str | Item) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    name = f"{part.kind}_url"
    return {"type": name, name: {"url": part.url}}


def _compare(
    engine: Engine, model: Model, name: str, sent: tuple[str, dict[str, Any], Case], tally: Tally
) -> None:
    """Plan a request and send it. Count what the engine has as planned."""
    route, request, case = sent
    engine.events.settle()
    try:
        plan = _plan(engine, model, request, case)
    except InputValueError as error:
        answer = engine.post(route, request)
        if answer.status_code == 200:
            tally.differences.append(f"{name}: served, but not planned: {error}")
        else:
            tally.refused += 1
        return
    answer = engine.post(route, plan.request)
    tally.sent += 1
    if answer.status_code != 200:
        tally.differences.append(f"{name}: {answer.status_code} {answer.text[:300]}")
        return
    content = answer.json()
    if (difference := _find_difference(plan, content)) is None:
        tally.equal += 1
    else:
        tally.differences.append(f"{name}: {difference}")
    first = prompts.cached(content) // engine.block_size
    expected = block_ids(plan.event_ids[first:])
    stored = prompts.published(engine.events.wait(len(plan.token_ids) // engine.block_size - first))
    # Without hashes, a plan for SGLang ends before the first image.
    if engine.name == "sglang" and case.items and "mm_hashes" not in plan.request:
        stored = stored[: len(expected)]
    named = sum(one == other for one, other in zip(stored, expected, strict=False))
    tally.stored += len(stored)
    tally.named += named
    if not named == len(stored) == len(expected):
        tally.differences.append(
            f"{name}: {named} of {len(stored)} blocks, {len(expected)} planned"
        )


def _plan(engine: Engine, model: Model, request: dict[str, Any], case: Case) -> Plan:
    return model.plan(
        request,
        engine.spelling,
        block_size=engine.block_size,
        media={one.url: one.known for one in case.items if one.known is not None},
        **_STARTED[engine.name](engine),
    )


# The options that vLLM's names depend on. SGLang has none.
_STARTED: dict[str, Callable[[Engine], dict[str, Any]]] = {
    "vllm": lambda engine: {"block_algorithm": engine.algorithm, "seed": engine.seed},
    "sglang": lambda _: {},
}


def _find_difference(plan: Plan, content: dict[str, Any]) -> str | None:
    """Return how the engine's ids differ from the planned ones."""
    ids = content.get("prompt_token_ids")
    if ids is None:
        usage = content.get("usage") or content["meta_info"]
        count = usage["prompt_tokens"]
        return None if count == len(plan.token_ids) else f"{count} ids, not {len(plan.token_ids)}"
    if ids == plan.token_ids:
        return None
    pairs = zip(ids, plan.token_ids, strict=False)
    first = next((i for i, (one, other) in enumerate(pairs) if one != other), -1)
    near = slice(max(0, first - 4), first + 12)
    return (
        f"{len(ids)} ids, not {len(plan.token_ids)}; from {first}: {ids[near]},"
        f" not {plan.token_ids[near]}"
    )
