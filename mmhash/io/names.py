"""File names in messages and in lines of hashes, and reasons for failures without the name."""

# The name of standard input.
STDIN = "-"

# The characters that b3sum escapes.
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", "\r": r"\r"})


def escape(name: str) -> tuple[str, str]:
    """Return the mark that begins the line, a backslash if the name is escaped, and the name."""
    name = name.encode(errors="surrogateescape").decode(errors="replace")
    text = name.translate(_ESCAPES)
    return "\\" if text != name else "", text


def printable(name: str) -> str:
    """Return a name as messages show it: on one line and never empty."""
    return "".join(escape(name)) or "''"


def reason(error: Exception) -> str:
    """Return the reason for a failure on one line, without the file's name."""
    text = getattr(error, "strerror", None) or str(error)
    return next(iter(text.splitlines()), type(error).__name__)
