"""Length-prefixed fields: the encoding of everything that is hashed besides content."""


def field(value: bytes) -> bytes:
    """Return `value` after its length: no two sequences of fields encode to the same bytes."""
    return len(value).to_bytes(8, "little") + value
