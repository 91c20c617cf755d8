"""The place of a value in a JSON document: as a path, and as a JSON pointer (RFC 6901)."""

Path = tuple[str | int, ...]
"""Names of members and indexes of lists, from the document's root to the value."""


def pointer_of(path: Path) -> str:
    """Return a path as a JSON pointer."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "".join(f"/{step}" for step in steps)
