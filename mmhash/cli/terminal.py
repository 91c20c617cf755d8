"""Text for a terminal: names come from anywhere, and a terminal obeys what they hold."""

from typing import TextIO


def visible(text: str, stream: TextIO | None) -> str:
    r"""Return one line of text as that stream may show it.

    On a terminal each character that does not print, or that changes how others are shown, becomes
    an escape such as `\x1b` or `\u202e`. To a file or pipe the text goes as it is.
    """
    if text.isprintable() or stream is None or stream.closed or not stream.isatty():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
