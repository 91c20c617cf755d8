"""constraints.txt pins each package that an installation for development has."""

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def pins() -> dict[str, Version]:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    parsed = [Requirement(line) for line in lines]
    return {canonicalize_name(one.name): Version(str(one.specifier)[2:]) for one in parsed}


def requirements_of(name: str, extras: set[str]) -> Iterator[Requirement]:
    for line in metadata.requires(name) or []:
        one = Requirement(line)
        if one.marker is None or any(
            one.marker.evaluate({"extra": extra}) for extra in {"", *extras}
        ):
            yield one


def installed() -> dict[str, Version]:
    """Return the versions of all packages that the extra `dev` needs, however indirectly."""
    found: dict[str, Version] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement("mmhash-keys[dev]")]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if (name, frozenset(one.extras)) in seen:
            continue
        seen.add((name, frozenset(one.extras)))
        try:
            found[name] = Version(metadata.version(name))
        except metadata.PackageNotFoundError:  # not installed here: optional on this platform
            continue
        waiting += requirements_of(name, one.extras)
    del found["mmhash-keys"]
    return found


def test_each_installed_package_is_pinned() -> None:
    versions = installed()
    assert len(versions) > 80
    pinned = pins()
    missing = [f"{name}=={version}" for name, version in versions.items() if name not in pinned]
    assert not missing, "\n".join(missing)
