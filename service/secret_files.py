"""Secrets from files: `MMHASH_TENANTS_FILE` names a file with the value of `MMHASH_TENANTS`.

So a secret of Docker or Kubernetes does not pass through the environment, which other processes and
crash reports can show.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import from_json

PREFIX = "MMHASH_"
SUFFIX = "_FILE"

# Settings that a file may hold; lists have one entry per line, or are JSON.
LISTS = frozenset({"api_key_digests", "tag_secrets"})
SETTINGS = frozenset({*LISTS, "memo_url", "tenants"})
SECRET_FILE_VARIABLES = frozenset(f"{PREFIX}{name.upper()}{SUFFIX}" for name in SETTINGS)

_MAX_BYTES = 1 << 20


def read_secret_files(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in the files that the variables name; an error shows no content."""
    values = {}
    for name in sorted(SETTINGS):
        plain = PREFIX + name.upper()
        variable = plain + SUFFIX
        if variable not in environment:
            continue
        if plain in environment:
            raise ValueError(f"{variable} and {plain} are both set: set one of them")
        values[name] = _parse(name, _read(variable, Path(environment[variable])), variable)
    return values


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


def _parse(name: str, text: str, variable: str) -> Any:
    if text[:1] in {"[", "{"}:
        try:
            return from_json(text)
        except ValueError:
            raise ValueError(f"the file of {variable} is not JSON") from None
    return text.split() if name in LISTS else text
