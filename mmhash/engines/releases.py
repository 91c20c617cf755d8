"""Releases of an engine: a table of ranges, with the recipe that each range shares."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from mmhash.arguments import check_text
from mmhash.errors import InputValueError

Recipe = TypeVar("Recipe")

_VERSION = re.compile(
    r"(?P<release>\d{1,6}(\.\d{1,6}){1,3})(rc(?P<rc>\d{1,6}))?(\.post(?P<post>\d{1,6}))?", re.ASCII
)
_NO_CANDIDATE = 1 << 20
"""Sorts a final release after its candidates."""


class Range(NamedTuple, Generic[Recipe]):
    """Releases with the same recipe; both ends are included."""

    first: str
    last: str
    recipe: Recipe

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


class Releases(Generic[Recipe]):
    """The known releases of an engine, oldest first, each with its recipe."""

    def __init__(self, engine: str, *ranges: Range[Recipe]) -> None:
        self.engine = engine
        self._ranges = ranges

    def __iter__(self) -> Iterator[Range[Recipe]]:
        return iter(self._ranges)

    @property
    def latest(self) -> str:
        """The newest known release."""
        return self._ranges[-1].last

    def recipe(self, version: str) -> Recipe:
        """Return the recipe of a release, such as `0.5.23` or `sglang@0.5.23`."""
        if type(version) is not str:
            check_text("version", version)
        found: Range[Recipe] = _find(self, version)
        return found.recipe

    def find(self, version: str) -> Range[Recipe]:
        """Return the range that contains a release."""
        engine, at, _ = version.rpartition("@")
        if at and engine != self.engine:
            raise InputValueError(f"{version[:40]!r} is not a release of {self.engine}")
        known = self._newest_up_to(version)
        if known is None or _parse(version) > _parse(known.last):
            raise self._unknown(version, known)
        return known

    def resolve(self, version: str, *, or_older: bool = False) -> str:
        """Return the release whose recipe applies: `version` itself if it is known.

        With `or_older`, the newest known older release stands in for an unknown one.
        """
        known = self._newest_up_to(version)
        if known is None or (not or_older and _parse(version) > _parse(known.last)):
            raise self._unknown(version, known)
        return min(version, known.last, key=_parse)

    def _newest_up_to(self, version: str) -> Range[Recipe] | None:
        """Return the newest range that does not begin after a release."""
        wanted = _parse(version)
        older = [known for known in self._ranges if _parse(known.first) <= wanted]
        return older[-1] if older else None

    def require(self, has: bool, what: str, since: str, version: str) -> None:
        """Raise an error for a feature that a release lacks, naming the first release with it."""
        if not has:
            raise InputValueError(f"{self.engine} {version} has no {what}: it came with {since}")

    def _unknown(self, version: str, older: Range[Recipe] | None) -> InputValueError:
        known = ", ".join(map(str, self._ranges))
        version = version.rpartition("@")[2]
        hint = f"; the newest before it is {older.last}" if older else ""
        return InputValueError(f"{self.engine} {version} is not known: mmhash knows {known}{hint}")


@lru_cache(256)  # a plan calls this repeatedly
def _find(releases: Releases[Recipe], version: str) -> Range[Recipe]:
    return releases.find(version)


def is_since(version: str, first: str) -> bool:
    """Return True if a release is `first` or later."""
    return _parse(version) >= _parse(first)


@lru_cache(256)  # a plan calls this repeatedly
def _parse(version: str) -> tuple[tuple[int, ...], int, int]:
    """Return a sort key: the numbers of the release, of its candidate, and of any later suffix."""
    match = _VERSION.fullmatch(version.rpartition("@")[2])  # sglang@0.5.23 is accepted too
    if match is None:
        raise InputValueError(f"{version[:40]!r} is not a release: give one such as 0.5.23")
    release = [int(number) for number in match["release"].split(".")]
    while release[-1:] == [0]:  # 0.31 means 0.31.0
        release.pop()
    return tuple(release), int(match["rc"] or _NO_CANDIDATE), int(match["post"] or -1)
