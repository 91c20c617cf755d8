"""Which recipe a release of an engine has: one table an engine, and an error that names it."""

import re
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from mmhash.engines.checks import text
from mmhash.errors import InputValueError

Recipe = TypeVar("Recipe")

_VERSION = re.compile(
    r"(?P<release>\d{1,6}(\.\d{1,6}){1,3})((?P<phase>rc|\.post)(?P<number>\d{1,6}))?", re.ASCII
)
_PHASES = {"rc": -1, None: 0, ".post": 1}


class Range(NamedTuple, Generic[Recipe]):
    """Releases, both ends included, that do a thing the same way."""

    first: str
    last: str
    recipe: Recipe

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


class Releases(Generic[Recipe]):
    """The known releases of an engine, oldest first, and what each does."""

    def __init__(self, engine: str, *ranges: Range[Recipe]) -> None:
        self.engine = engine
        self._ranges = ranges

    def __iter__(self) -> Iterator[Range[Recipe]]:
        return iter(self._ranges)

    @property
    def latest(self) -> str:
        """The newest release that is known."""
        return self._ranges[-1].last

    def recipe(self, version: str) -> Recipe:
        """What that release does; a release that is not known is an error that lists the known."""
        if type(version) is not str:
            version = text("version", version)
        wanted = _parse(version)
        for known in self._ranges:
            if _parse(known.first) <= wanted <= _parse(known.last):
                return known.recipe
        raise InputValueError(
            f"{self.engine} {version} is not known; known are {', '.join(map(str, self._ranges))}"
        )


def _parse(version: str) -> tuple[list[int], int, int]:
    """A version as what sorts: its numbers, and whether it comes before or after their release."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise InputValueError(f"{version[:40]!r} is not a release: give one such as 0.5.23")
    release = [int(number) for number in match["release"].split(".")]
    while release[-1:] == [0]:  # 0.31 is 0.31.0
        release.pop()
    return release, _PHASES[match["phase"]], int(match["number"] or 0)
