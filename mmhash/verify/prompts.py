"""Prompts that no engine has seen: random text and random images."""

import base64
import io
import secrets
from dataclasses import dataclass, replace
from typing import Any

import httpx
from PIL import Image

import mmhash
from mmhash.digest import Digest
from mmhash.errors import ServiceError

_SIZE = (224, 224)

# Enough for several blocks of any usual size.
_WORDS = 120


@dataclass(frozen=True)
class Sample:
    """An image of random pixels, and its key."""

    image: Image.Image
    key: Digest

    def file(self, format_: str) -> bytes:
        """Return the image as a file of that format, with the same bytes each time."""
        buffer = io.BytesIO()
        self.image.save(buffer, format_)
        return buffer.getvalue()

    def data_url(self, format_: str) -> str:
        """Return the image as a data: URL of that format."""
        encoded = base64.b64encode(self.file(format_)).decode()
        return f"data:image/{format_.lower()};base64,{encoded}"


@dataclass(frozen=True)
class Prompt:
    """A prompt: its text, its images and their format, and its cache salt."""

    name: str
    text: str
    images: tuple[Sample, ...] = ()
    image_format: str = "PNG"
    salt: str | None = None

    def file_keys(self) -> list[Digest]:
        """Return the keys of the images' files."""
        return [mmhash.key(image.file(self.image_format)) for image in self.images]

    def with_new_text(self) -> "Prompt":
        """Return the same media with different text, so the engine has cached no block of it."""
        return replace(self, text=_text())


def prompts() -> list[Prompt]:
    """Return the prompts of one check: text, one image, two images, and a salted prompt."""
    one, two, three = (_sample() for _ in range(3))
    return [
        Prompt("text", _text()),
        Prompt("one image", _text(), (one,)),
        Prompt("two images", _text(), (two, three), "BMP"),
        Prompt("salted", _text(), salt=secrets.token_hex(16)),
    ]


def request(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    """Send a request and return the engine's answer. Raise an error unless the status is 200."""
    try:
        answer = client.post(path, json=body)
    except httpx.HTTPError as error:
        raise ServiceError(f"the engine did not answer {path}: {type(error).__name__}") from error
    if answer.status_code != httpx.codes.OK:
        raise ServiceError(f"the engine answered {path} with {answer.status_code}")
    return members(answer)


def members(answer: httpx.Response) -> dict[str, Any]:
    """Return the members of the JSON object in the engine's answer."""
    try:
        value = answer.json()
    except (ValueError, RecursionError) as error:
        raise ServiceError(f"the engine answered {answer.url.path} with no JSON") from error
    return value if isinstance(value, dict) else {}


def _sample() -> Sample:
    width, height = _SIZE
    image = Image.frombytes("RGB", _SIZE, secrets.token_bytes(3 * width * height))
    return Sample(image, mmhash.key(image))


def _text() -> str:
    return " ".join(secrets.token_hex(2) for _ in range(_WORDS))
