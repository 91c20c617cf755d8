r"""Lines of a sum file in b3sum's format: `<hex>  <name>`.

A name with a backslash or a line break is escaped, and its line begins with a backslash. The text
is UTF-8: other bytes of a name are replaced by U+FFFD, and such a name cannot be checked, because
two names may have become equal.
"""

import re

from mmhash.algorithms import ALGORITHM_SPECS
from mmhash.digest import Digest
from mmhash.errors import InputValueError
from mmhash.io.names import CHARACTERS, escape

# A sum file names no algorithm: the length of a digest implies it.
_ALGORITHM_BY_HEX_LENGTH = {2 * spec.digest_size: name for name, spec in ALGORITHM_SPECS.items()}
_HEX = "|".join(f"[0-9a-f]{{{length}}}" for length in _ALGORITHM_BY_HEX_LENGTH)
_LINE = re.compile(rf"(?P<mark>\\?)(?P<hex>{_HEX})  (?P<name>.+)", re.DOTALL)
_ESCAPED_NAME = re.compile(r"(?:[^\\]|\\[\\nr])+")


def format_line(hash_: str, name: str) -> str:
    """Return the line of a sum file without its newline."""
    mark, text = escape(name)
    return f"{mark}{hash_}  {text}"


def parse_line(line: str) -> tuple[Digest, str]:
    """Return the digest and the name in a line of a sum file."""
    match = _LINE.fullmatch(line.rstrip("\r\n"))
    if match is None:
        lengths = " or ".join(map(str, _ALGORITHM_BY_HEX_LENGTH))
        raise InputValueError(f"not <{lengths} hex digits>, two spaces and a name")
    name = match["name"]
    if match["mark"]:
        if _ESCAPED_NAME.fullmatch(name) is None:
            raise InputValueError(r"an escape in the name that is not \\, \n or \r")
        name = re.sub(r"\\.", lambda match: CHARACTERS[match[0]], name)
    if "\0" in name or "\ufffd" in name:
        raise InputValueError("a name that no file has: it contains U+0000 or U+FFFD")
    algorithm = _ALGORITHM_BY_HEX_LENGTH[len(match["hex"])]
    return Digest.parse(f"{algorithm}:{match['hex']}"), name
