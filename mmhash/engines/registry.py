"""The engines that mmhash knows, one line each. Each engine's module holds everything else."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from mmhash.arguments import check_int, check_text
from mmhash.digest import Digest
from mmhash.engines import checks, dynamo, sglang, trtllm, vllm
from mmhash.engines.engine import Engine, RequestFields, Step
from mmhash.errors import InputValueError

ENGINES: tuple[Engine, ...] = (sglang.ENGINE, vllm.ENGINE, trtllm.ENGINE, dynamo.ENGINE)

_BY_NAME = {engine.name: engine for engine in ENGINES}


def names() -> tuple[str, ...]:
    """Return the names of the engines that mmhash knows."""
    return tuple(_BY_NAME)


def known() -> dict[str, list[str]]:
    """Return the known ranges of releases of each engine, oldest first."""
    return {engine.name: [str(known) for known in engine.releases] for engine in ENGINES}


def find(text: str, *, or_older: bool = False) -> tuple[Engine, str]:
    """Return the engine and release that `sglang@0.5.23` names.

    `sglang` alone means the newest known release. An unknown release is an error, unless `or_older`
    lets the newest known older release stand in for it.
    """
    name, _, version = check_text("an engine", text).partition("@")
    engine = _BY_NAME.get(name)
    if engine is None:
        close = get_close_matches(name[:40].strip().lower(), _BY_NAME, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(_BY_NAME)}"
        raise InputValueError(f"there is no engine {name[:40]!r}: {hint}")
    return engine, engine.releases.resolve(version or engine.releases.latest, or_older=or_older)


def split_names(engines: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names in `"sglang@0.5.23,vllm"` or in a list of such texts, without duplicates.

    >>> split_names("sglang@0.5.23,vllm") == split_names(["sglang@0.5.23", "vllm"])
    True
    """
    texts = [engines] if isinstance(engines, str) else checks.iterated("engines", engines)
    names = [name for text in texts for name in check_text("an engine", text).split(",") if text]
    return tuple(dict.fromkeys(names))


def parse(text: str) -> tuple[str, str]:
    """Return the engine's name and the release of `sglang@0.5.23`; see `find`."""
    engine, version = find(text)
    return engine.name, version


def request_fields(
    key: Digest,
    engine: str,
    *,
    exif_orientation: int = 1,
) -> RequestFields:
    """Return the fields that carry the key in a request to an engine.

    Args:
        key: The key of an item.
        engine: The engine and its release: `"sglang@0.5.23"`, or `"sglang"` for the newest known.
        exif_orientation: The image's EXIF orientation, 1 to 8, if the key comes from its pixels.
            Engines that apply the orientation must tell such images apart; the key does not.

    >>> request_fields(mmhash.key(b"abc"), "sglang@0.5.23")["mm_hash"]
    '0f3e80300d68299e'
    """
    found, version = find(engine)
    orientation = check_int("exif_orientation", exif_orientation, 1, 8)
    key = checks.key("request_fields", key)
    return found.request_fields(found.name_item(key, version, orientation=orientation), version)


def pad_values(key_or_hash: Digest | int | bytes, engine: str = "sglang") -> list[int]:
    """Return the token ids that stand for an item in SGLang's prefix cache.

    Args:
        key_or_hash: The key of an item, its 64-bit hash, or its 32-byte identity.
        engine: The engine and its release: `"sglang@0.5.23"`, or `"sglang"` for the newest known.

    >>> pad_values(mmhash.key(b"abc"), "sglang@0.5.22")
    [225930206]
    """
    found, version = find(engine)
    if found.pad_values is None:
        raise InputValueError(f"{found.name} has no pad values")
    return found.pad_values(key_or_hash, version)


def explain(key: Digest, engine: str) -> Iterator[Step]:
    """Yield each step from the key to its place in the cache: a description and a value."""
    found, version = find(engine)
    return found.explain(checks.key("explain", key), version)
