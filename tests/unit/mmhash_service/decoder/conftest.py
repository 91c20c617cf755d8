"""An image for decoders."""

from io import BytesIO

import pytest
from PIL import Image


@pytest.fixture(scope="session")
def photo() -> bytes:
    """A JPEG of noise."""
    body = BytesIO()
    Image.effect_noise((320, 240), 40).convert("RGB").save(body, "JPEG")
    return body.getvalue()
