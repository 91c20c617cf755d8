"""`POST /hash?of=frames`: the key of a video or an audio clip under a recipe."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from mmhash.arguments import check_choice
from mmhash.client.effects import RESPONSE_BASE, Effects, Request, RunInThread, given
from mmhash.client.items import ExpectedItem, Item, ItemKind, parse_items
from mmhash.client.payload import payload_of
from mmhash.client.responses import document
from mmhash.client.retry import send_with_retry
from mmhash.client.session import Session
from mmhash.digest import Algorithm, check_algorithm
from mmhash.engines.registry import split_names
from mmhash.engines.releases import Fallback
from mmhash.errors import InputTypeError

By = Literal["source", "frames"]

# Decoded frames or windows of an item, each with a key in hex.
_MAX_PARTS_BYTES = 1024 * 70
_ENGINE_BYTES = 4 << 10


def video(  # noqa: D417  (a method has no session)
    session: Session,
    source: Any,
    *,
    fps: float | None = None,
    count: int | None = None,
    indices: Sequence[int] | None = None,
    max_frames: int | None = None,
    size: tuple[int, int] | None = None,
    by: By = "source",
    algorithm: Algorithm = "blake3",
    engines: str | Iterable[str] = (),
    sign: bool = False,
    engine_fallback: Fallback | None = None,
) -> Effects[Item]:
    """Return the key of a video under a recipe, as `mmhash.video` computes it.

    Args:
        source: The bytes of the file, or its path as a `pathlib.Path`.
        fps: Frames per second.
        count: The number of frames, evenly spaced from the first to the last.
        indices: The numbers of frames, from 0, ascending.
        max_frames: Select this number by `count` if the recipe selects more.
        size: The width and height of the frames.
        by: `"frames"` decodes, and returns the key of each frame too.
        algorithm: The algorithm of the digests.
        engines: The engines whose request fields are wanted, as for `hash`.
        sign: Return a tag for the guard of the one engine in `engines`.
        engine_fallback: As for `hash`.
    """
    recipe = {
        "fps": fps,
        "count": count,
        "indices": None if indices is None else ",".join(map(str, indices)),
        "max_frames": max_frames,
        "size": None if size is None else "x".join(map(str, size)),
    }
    return (
        yield from _hash(
            session, "video", source, recipe, by, algorithm, engines,
            sign=sign, engine_fallback=engine_fallback,
        )
    )  # fmt: skip


def audio(  # noqa: D417  (a method has no session)
    session: Session,
    source: Any,
    *,
    rate: int | None = None,
    channels: int | None = None,
    start: float | None = None,
    stop: float | None = None,
    window: float | None = None,
    by: By = "source",
    algorithm: Algorithm = "blake3",
    engines: str | Iterable[str] = (),
    sign: bool = False,
    engine_fallback: Fallback | None = None,
) -> Effects[Item]:
    """Return the key of an audio clip under a recipe, as `mmhash.audio` computes it.

    Args:
        source: The bytes of the file, or its path as a `pathlib.Path`.
        rate: Samples per second.
        channels: The number of channels.
        start: The first second.
        stop: The second after the last.
        window: The length of a window in seconds.
        by: `"frames"` decodes, and returns the key of each window too.
        algorithm: The algorithm of the digests.
        engines: The engines whose request fields are wanted, as for `hash`.
        sign: Return a tag for the guard of the one engine in `engines`.
        engine_fallback: As for `hash`.
    """
    recipe = {"rate": rate, "channels": channels, "start": start, "stop": stop, "window": window}
    return (
        yield from _hash(
            session, "audio", source, recipe, by, algorithm, engines,
            sign=sign, engine_fallback=engine_fallback,
        )
    )  # fmt: skip


def _hash(  # noqa: PLR0917  (in the order of the methods' arguments)
    session: Session,
    kind: Literal["video", "audio"],
    source: Any,
    recipe: dict[str, Any],
    by: By,
    algorithm: Algorithm,
    engines: str | Iterable[str],
    *,
    sign: bool,
    engine_fallback: Fallback | None,
) -> Effects[Item]:
    check_choice("by", by, "source", "frames")
    algorithm, names = check_algorithm(algorithm), split_names(engines)
    options = given(
        **recipe,
        of="frames",
        by=by,
        algorithm=algorithm,
        engines=",".join(names) or None,
        sign=1 if sign else None,
        engine_fallback=engine_fallback,
    )
    query = {name: str(value) for name, value in options.items()}
    payload = yield RunInThread(lambda: payload_of(source, "bytes"))
    if payload.kind != "bytes":
        raise InputTypeError(
            f"a {kind} is the bytes of its file, or a pathlib.Path, not {type(source).__name__}"
        )
    result: ItemKind = kind if by == "source" else "list"
    limit = RESPONSE_BASE + _MAX_PARTS_BYTES + _ENGINE_BYTES * len(names)
    request = Request("POST", "/hash", query, f"{kind}/x-any", payload.content, limit)
    response = yield from send_with_retry(session, request)
    expected = [ExpectedItem(algorithm, frozenset(names), result)]
    (item,) = parse_items(document(response), expected)
    return item
