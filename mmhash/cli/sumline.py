r"""A line of a sum file as b3sum writes and reads it: `<hex>  <name>`.

A name that holds a backslash or a line break is escaped, and its line begins with a backslash. The
text is UTF-8: what of a name is not becomes U+FFFD, and such a name cannot be checked, for two
names may have become one.
"""

import re

from mmhash.digest import Digest
from mmhash.errors import InputValueError
from mmhash.io.names import CHARACTERS, escape

_LINE = re.compile(r"(?P<mark>\\?)(?P<hex>[0-9a-f]{64}|[0-9a-f]{32})  (?P<name>.+)", re.DOTALL)
_ESCAPED_NAME = re.compile(r"(?:[^\\]|\\[\\nr])+")
_ALGORITHM_BY_HEX_LENGTH = {64: "blake3", 32: "xxh3"}


def format_line(hash_: str, name: str) -> str:
    """The line of a sum file, without its newline."""
    mark, text = escape(name)
    return f"{mark}{hash_}  {text}"


def parse_line(line: str) -> tuple[Digest, str]:
    """The digest and the name that a line of a sum file holds."""
    match = _LINE.fullmatch(line.rstrip("\r\n"))
    if match is None:
        raise InputValueError("not <64 or 32 hex digits>, two spaces and a name")
    name = match["name"]
    if match["mark"]:
        if _ESCAPED_NAME.fullmatch(name) is None:
            raise InputValueError(r"an escape in the name that is not \\, \n or \r")
        name = re.sub(r"\\.", lambda match: CHARACTERS[match[0]], name)
    if "\0" in name or "\ufffd" in name:
        raise InputValueError("a name that no file has: it holds U+0000 or U+FFFD")
    algorithm = _ALGORITHM_BY_HEX_LENGTH[len(match["hex"])]
    return Digest.parse(f"{algorithm}:{match['hex']}"), name
