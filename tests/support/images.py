"""Images as files, as `data:` URLs and as parts of a chat."""

import base64
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from PIL import Image


def encode(image: Image.Image, format_: str = "PNG") -> bytes:
    """Encode an image in a format of Pillow."""
    file = BytesIO()
    image.save(file, format_)
    return file.getvalue()


def encode_noise(
    name: str, mode: str = "RGB", size: tuple[int, int] = (16, 12), frames: int = 1
) -> bytes:
    """Encode frames of noise in a format of Pillow, the same for the same arguments."""
    nbytes = len(Image.new(mode, size).tobytes())
    images = [
        Image.frombytes(mode, size, bytes((i * i + 7 * number) % 251 for i in range(nbytes)))
        for number in range(frames)
    ]
    more = {"save_all": True, "append_images": images[1:]} if frames > 1 else {}
    body = BytesIO()
    images[0].save(body, name, **more)
    return body.getvalue()


def frames_url(frames: Iterable[bytes]) -> str:
    """Return the data: URL of a video that is sent as its frames."""
    return "data:video/jpeg;base64," + ",".join(base64.b64encode(one).decode() for one in frames)


def data_url(content: bytes, media_type: str = "image/png") -> str:
    """Return the `data:` URL of a file."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def image_part(content: bytes) -> dict[str, Any]:
    """Return the part of a chat that has an image."""
    return {"type": "image_url", "image_url": {"url": data_url(content)}}
