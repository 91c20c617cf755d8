"""data: URLs (RFC 2397), whose content is in the URL, in base64 or percent-encoded."""

from urllib.parse import unquote_to_bytes

from mmhash_service.bodies.parsing import parse_base64
from mmhash_service.problems.problem import Problem

# Decoding an escape is slow. Base64 needs few escapes: for plus, slash and equals signs.
MAX_ESCAPES = 100_000


def is_data_url(url: str) -> bool:
    """Return True if the scheme is data:."""
    return url[:5].lower() == "data:"


def is_media_url(url: str) -> bool:
    """Return True if a data: URL declares an image, a video or an audio clip."""
    return url[5:11].lower() in {"image/", "video/", "audio/"}


def read_data_url(url: str) -> bytearray:
    """Return the content of the URL; run this in a thread."""
    head, comma, text = url.partition(",")
    # A fragment is not part of the content: refuse it instead of ignoring it.
    has_escapes = "%" in text  # far faster than count()
    is_long = has_escapes and text.count("%") > MAX_ESCAPES
    if not comma or "#" in text or not text.isascii() or is_long:
        raise Problem("invalid-url")
    if not head.lower().endswith(";base64"):
        return bytearray(unquote_to_bytes(text))
    return parse_base64(unquote_to_bytes(text).decode("latin-1") if has_escapes else text)
