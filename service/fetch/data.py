"""data: URLs (RFC 2397): the content itself, in base64 or percent-encoded."""

from urllib.parse import unquote_to_bytes

from mmhash_service.api.problems import Problem
from mmhash_service.bodies.parsing import parse_base64

# Each takes 0.25 µs to undo; base64 needs a few, if any: its plus, slash and equals signs.
MAX_ESCAPES = 100_000


def is_data_url(url: str) -> bool:
    """Whether it is one, by its scheme."""
    return url[:5].lower() == "data:"


def read_data_url(url: str) -> bytearray:
    """The content that the URL holds: for a worker."""
    head, comma, text = url.partition(",")
    # What follows a # is no content but a place in it: it is rather refused than left out.
    if not comma or "#" in text or not text.isascii() or text.count("%") > MAX_ESCAPES:
        raise Problem("invalid-url")
    if not head.lower().endswith(";base64"):
        return bytearray(unquote_to_bytes(text))
    return parse_base64(unquote_to_bytes(text).decode("latin-1") if "%" in text else text)
