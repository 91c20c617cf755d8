"""The value of a hash, and the names of the algorithms that make one."""

import builtins
import re
from dataclasses import dataclass
from typing import Literal, Self, get_args

from mmhash.errors import InputTypeError, InputValueError

Algorithm = Literal["blake3", "xxh3"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)

DIGEST_SIZE: dict[str, int] = {"blake3": 32, "xxh3": 16}

_TEXT = re.compile(r"(?P<algorithm>[a-z0-9]+):(?P<hex>[0-9a-fA-F]*)")


def check_algorithm(name: str) -> Algorithm:
    """Return `name` if it is an algorithm of ours; else say which are."""
    if not issubclass(type(name), str):
        raise InputTypeError(f"an algorithm is a str, not {type(name).__name__}")
    name = str.__str__(name)
    for algorithm in ALGORITHMS:
        if name == algorithm:
            return algorithm
    raise InputValueError(f"unknown algorithm {name[:40]!r}: choose one of {', '.join(ALGORITHMS)}")


@dataclass(frozen=True, slots=True)
class Digest:
    """The value of a hash: which algorithm gave it, and its bytes.

    `str()` spells it as `blake3:<hex>`, which `parse()` reads back.
    """

    algorithm: Algorithm
    bytes: builtins.bytes

    def __post_init__(self) -> None:
        # A plain text of a known name, the common case, is not checked further.
        size = DIGEST_SIZE.get(self.algorithm) if type(self.algorithm) is str else None
        if size is None:
            size = DIGEST_SIZE[check_algorithm(self.algorithm)]
        if type(self.bytes) is not bytes or len(self.bytes) != size:
            raise InputValueError(f"a {self.algorithm} digest is {size} bytes")

    def hex(self) -> str:
        """The bytes as lower-case hex: what `b3sum` prints."""
        return self.bytes.hex()

    @property
    def u64(self) -> int:
        """The first 8 bytes as a big-endian number, for callers who have room for no more."""
        return int.from_bytes(self.bytes[:8], "big")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the spelling that `str()` gives."""
        if not isinstance(text, str):
            raise InputTypeError(f"a digest is parsed from a str, not from {type(text).__name__}")
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InputValueError("a digest is spelled <algorithm>:<hex>, like blake3:af1349b9…")
        algorithm = check_algorithm(match["algorithm"])
        size = DIGEST_SIZE[algorithm]
        if len(match["hex"]) != 2 * size:
            raise InputValueError(
                f"a {algorithm} digest has {2 * size} hex digits, not {len(match['hex'])}"
            )
        return cls(algorithm, builtins.bytes.fromhex(match["hex"]))

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex()}"

    def __bytes__(self) -> builtins.bytes:
        return self.bytes
