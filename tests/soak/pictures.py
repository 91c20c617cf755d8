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
    image = Image.frombytes("RGB", size, context.noise(3 * size[0] * size[1], draw))
    file = BytesIO()
    image.save(file, kind)
    return file.getvalue(), kind
