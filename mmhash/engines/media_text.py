"""The texts of media in requests that every engine decodes as mmhash does."""

import re

# vLLM makes a data: URL of an audio clip's format and data: with a comma in the format, the content
# would begin there.
_FORMAT = re.compile(r"[A-Za-z0-9.+-]{0,64}", re.ASCII)


def is_clear(text: str) -> bool:
    """Return True unless the text is a data: URL whose content engines decode in another way.

    They take all behind the comma for base64, whatever is before it, and vLLM before 0.30 skips the
    signs of escapes in videos and audio clips.
    """
    if text[:5].lower() != "data:":
        return True
    comma = text.find(",")
    return comma >= 0 and text.endswith(";base64", 0, comma) and text.find("%", comma) < 0


def is_frames(text: str) -> bool:
    """Return True if vLLM reads the text as images, the frames of a video, and not as a file."""
    return text[:16].lower() == "data:video/jpeg;"


def is_clear_format(format_: object) -> bool:
    """Return True if the value is a name that an audio clip's format can have."""
    return isinstance(format_, str) and _FORMAT.fullmatch(format_) is not None
