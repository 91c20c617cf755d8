"""Secrets from files: `MMHASH_TENANTS_FILE` names a file with the value of `MMHASH_TENANTS`.

So a secret of Docker or Kubernetes does not pass through the environment, which other processes and
crash reports can show.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import from_json

_SUFFIX = "_FILE"
_MAX_BYTES = 1 << 20


class SecretFiles:
    """The settings with a prefix that files may hold.

    Args:
        prefix: That of their variables.
        single: The settings of one value; a table is JSON.
        lists: Those of several, which have a line for each, or are JSON.
    """

    def __init__(
        self, prefix: str, *, single: Iterable[str] = (), lists: Iterable[str] = ()
    ) -> None:
        self._prefix = prefix
        self._lists = frozenset(lists)
        self._names = sorted({*single, *lists})

    @property
    def variables(self) -> frozenset[str]:
        """The variables that name the files."""
        return frozenset(self._plain(name) + _SUFFIX for name in self._names)

    def read(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings in the files that the variables name; an error shows no content."""
        values = {}
        for name in self._names:
            plain = self._plain(name)
            variable = plain + _SUFFIX
            if variable not in environment:
                continue
            if plain in environment:
                raise ValueError(f"{variable} and {plain} are both set: set one of them")
            text = _read(variable, Path(environment[variable]))
            values[name] = _parse(text, variable, is_list=name in self._lists)
            # A list without keys would open the service.
            if not text or (name in self._lists and not values[name]):
                raise ValueError(f"the file of {variable} is empty")
        return values

    def _plain(self, name: str) -> str:
        return self._prefix + name.upper()


def _read(variable: str, path: Path) -> str:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{variable} does not name a regular file")
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{variable}: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise ValueError(f"the file of {variable} has more than {_MAX_BYTES} bytes")
    try:
        return content.decode().strip()
    except UnicodeDecodeError:
        raise ValueError(f"the file of {variable} is not UTF-8") from None


def _parse(text: str, variable: str, *, is_list: bool) -> Any:
    if text[:1] in {"[", "{"}:
        try:
            return from_json(text)
        except ValueError:
            raise ValueError(f"the file of {variable} is not JSON") from None
    return text.split() if is_list else text
