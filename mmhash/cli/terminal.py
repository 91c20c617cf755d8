"""Text for a terminal: names may contain control characters, which a terminal would execute."""

from typing import TextIO


def visible(text: str, stream: TextIO | None) -> str:
    r"""Return one line of text in a form that is safe for the stream.

    For a terminal, each character that is not printable, or changes how others are shown, becomes
    an escape such as `\x1b` or `\u202e`. For a file or a pipe, the text does not change.
    """
    if text.isprintable() or stream is None or stream.closed or not stream.isatty():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
