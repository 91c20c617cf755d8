"""The value of a hash."""

import builtins
import re
from dataclasses import dataclass
from typing import Self

from mmhash.algorithms import ALGORITHMS, DIGEST_SIZE, Algorithm, check_algorithm
from mmhash.errors import InputTypeError, InputValueError

__all__ = ["ALGORITHMS", "DIGEST_SIZE", "Algorithm", "Digest", "check_algorithm"]

_HEX = re.compile("[0-9a-fA-F]*")
_TEXT = re.compile(r"(?P<algorithm>[a-z0-9]+):(?P<hex>[0-9a-fA-F]*)")


@dataclass(frozen=True, slots=True, order=True, repr=False)
class Digest:
    """The value of a hash: the algorithm's name and the bytes.

    Digests can be compared, sorted and used in sets. `str()` returns `blake3:<hex>`, which
    `parse()` reads. `json.dumps` needs `default=str`.

    Args:
        algorithm: `"blake3"` or `"xxh3"`.
        bytes: The 32 or 16 bytes of the hash.

    >>> digest = mmhash.digest(b"abc")
    >>> digest
    Digest.parse('blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85')
    >>> json.dumps({"digest": digest}, default=str)[:32]
    '{"digest": "blake3:6437b3ac38465'
    """

    algorithm: Algorithm
    bytes: builtins.bytes

    def __post_init__(self) -> None:
        size = DIGEST_SIZE[check_algorithm(self.algorithm)]
        if not isinstance(self.bytes, bytes) or len(self.bytes) != size:
            raise InputValueError(f"a {self.algorithm} digest must be {size} bytes")

    def hex(self) -> str:
        """Return the bytes as lower-case hex, as `b3sum` prints them."""
        return self.bytes.hex()

    @property
    def u64(self) -> int:
        """The first 8 bytes as a big-endian number, for consumers of 64-bit hashes."""
        return int.from_bytes(self.bytes[:8], "big")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form that `str()` returns.

        Args:
            text: The algorithm, a colon and hex digits.

        >>> Digest.parse("xxh3:99aa06d3014798d86001c324468d497f").algorithm
        'xxh3'
        """
        if not isinstance(text, str):
            raise InputTypeError(f"Digest.parse() takes a str, not {type(text).__name__}")
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InputValueError(
                "a digest must have the form <algorithm>:<hex>, like blake3:af1349b9…"
            )
        return cls.fromhex(match["hex"], algorithm=check_algorithm(match["algorithm"]))

    @classmethod
    def fromhex(cls, text: str, *, algorithm: Algorithm = "blake3") -> Self:
        """Return the digest whose `hex()` is `text`; upper case is accepted.

        >>> Digest.fromhex("99aa06d3014798d86001c324468d497f", algorithm="xxh3").algorithm
        'xxh3'
        """
        chosen = check_algorithm(algorithm)
        if not isinstance(text, str):
            raise InputTypeError(f"hex digits must be a str, not {type(text).__name__}")
        digits = 2 * DIGEST_SIZE[chosen]
        if len(text) != digits or _HEX.fullmatch(text) is None:
            raise InputValueError(
                f"a {chosen} digest must have {digits} hex digits, not {text[:80]!r}"
            )
        return cls(chosen, builtins.bytes.fromhex(text))

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex()}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}.parse({str(self)!r})"


_set_algorithm = vars(Digest)["algorithm"].__set__
_set_bytes = vars(Digest)["bytes"].__set__


def blank_digests(algorithm: Algorithm, count: int) -> list[Digest]:
    """Return blank digests for `fill_digests` to fill, created while a GPU computes."""
    digests = [object.__new__(Digest) for _ in range(count)]
    for digest in digests:
        _set_algorithm(digest, algorithm)
    return digests


def fill_digests(digests: list[Digest], contents: list[builtins.bytes]) -> None:
    """Set the bytes of blank digests, which is faster than creating the digests now."""
    for digest, content in zip(digests, contents, strict=True):
        _set_bytes(digest, content)


def unchecked_digest(algorithm: Algorithm, content: builtins.bytes) -> Digest:
    """Return a digest without checking it: the content comes straight from a hash function."""
    digest = object.__new__(Digest)
    _set_algorithm(digest, algorithm)
    _set_bytes(digest, content)
    return digest
