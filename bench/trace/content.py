"""Makes real images and texts from ids, and OpenAI requests that carry them."""

import base64
from functools import lru_cache
from io import BytesIO
from random import Random
from typing import Any

from PIL import Image as Pillow

from bench.trace.records import Image, Message, Request, Text

_LETTERS = "abcdefghijklmnopqrstuvwxyz   "
# An image is an enlarged grid of random colours: quick to make, and a tenth of the size of noise.
_GRID = 12


def jpeg(image: Image) -> bytes:
    """Return the JPEG file of an image. Different ids give different pixels."""
    colours = Random(image.image).randbytes(_GRID * _GRID * 3)
    grid = Pillow.frombytes("RGB", (_GRID, _GRID), colours)
    file = BytesIO()
    grid.resize((image.width, image.height), Pillow.Resampling.BILINEAR).save(
        file, "JPEG", quality=80
    )
    return file.getvalue()


@lru_cache(4096)
def data_url(image: Image) -> str:
    """Return an image as a data: URL."""
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg(image)).decode()}"


def text_of(text: Text, letters_per_token: int) -> str:
    """Return a text. For a byte tokenizer one letter is a token, for others about four are."""
    draw = Random(text.text)
    return "".join(draw.choices(_LETTERS, k=text.tokens * letters_per_token))


def openai_request(request: Request, model: str, *, letters_per_token: int = 4) -> dict[str, Any]:
    """Return the streamed chat request. Tenants have salts, so they share no cache."""

    def part(one: Image | Text) -> dict[str, Any]:
        if isinstance(one, Image):
            return {"type": "image_url", "image_url": {"url": data_url(one)}}
        return {"type": "text", "text": text_of(one, letters_per_token)}

    def message(one: Message) -> dict[str, Any]:
        return {"role": one.role, "content": [part(each) for each in one.content]}

    salt = {"cache_salt": request.tenant} if request.tenant else {}
    return salt | {
        "model": model,
        "messages": [message(one) for one in request.messages],
        "max_tokens": request.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
