"""Encoded images."""

from io import BytesIO

from PIL import Image


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
