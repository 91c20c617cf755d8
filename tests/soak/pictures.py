"""Files of pictures, of every format that the service decodes."""

from io import BytesIO
from random import Random

from PIL import Image

from tests.soak.context import LoadContext

_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
_KNOWN = 40


def picture(context: LoadContext) -> tuple[bytes, str]:
    """The file of a picture and its format: of two pictures, one is among those that are known."""
    known = context.draw.random() < 0.5
    draw = Random(context.draw.randrange(_KNOWN if known else 1 << 32))
    kind = draw.choice(_FORMATS)
    size = draw.randint(1, 320), draw.randint(1, 240)
    frames = [
        Image.frombytes("RGB", size, context.noise(3 * size[0] * size[1], draw))
        for _ in range(3 if kind == "GIF" else 1)
    ]
    file = BytesIO()
    more = {"save_all": True, "append_images": frames[1:]} if len(frames) > 1 else {}
    frames[0].save(file, kind, **more)
    return file.getvalue(), kind
