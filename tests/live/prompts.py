"""Makes requests with random content, equal for all engines, and the names of their blocks."""

import base64
import io
import json
import secrets
import time
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import httpx
import numpy as np
from PIL import Image
from tokenizers import Tokenizer

import mmhash
from mmhash.digest import Digest
from mmhash.engines import sglang, vllm
from mmhash.kvindex import BlocksStored
from mmhash.tags import sign_tag
from tests.live.engines import Engine
from tests.support.clips import make_video

SECRET = bytes(range(32))
MAX_TOKENS = 2048
SIDE = 224
PIXELS_OF_TOKEN = 28  # a token is 28 by 28 pixels
FRAMES = 4

IMAGE_TEXT = "<|vision_start|><|image_pad|><|vision_end|>"
TEXTS = {"image": IMAGE_TEXT, "video": IMAGE_TEXT.replace("image", "video")}


@dataclass(frozen=True)
class Media:
    """A random image or video, its key, and the format in which it is sent."""

    kind: str
    key: Digest
    frames: tuple[Image.Image, ...]
    format: str = "PNG"
    file: bytes = b""

    @property
    def tokens(self) -> int:
        """Return how many tokens an image takes in a prompt."""
        return (self.frames[0].width // PIXELS_OF_TOKEN) ** 2

    @property
    def url(self) -> str:
        """Return a data: URL. Frames are a sequence of JPEG files, which need no video decoder."""
        if self.file:
            return f"data:{self.kind}/{self.format};base64,{base64.b64encode(self.file).decode()}"
        if self.kind == "video":
            frames = ",".join(_encoded(frame, "JPEG") for frame in self.frames)
            return f"data:video/jpeg;base64,{frames}"
        return f"data:image/{self.format.lower()};base64,{_encoded(self.frames[0], self.format)}"

    def as_format(self, format_: str) -> "Media":
        """Return the same pixels in another format."""
        return Media(self.kind, self.key, self.frames, format_)


@dataclass(frozen=True)
class Prompt:
    """Media, then text. Both are random unless given."""

    media: tuple[Media, ...] = ()
    text: str = field(default_factory=lambda: secrets.token_hex(120))
    salt: str | None = None
    lora: str | None = None


def image(side: int = SIDE) -> Media:
    """Return a square image that no engine has seen."""
    pixels = np.random.default_rng().integers(0, 256, (side, side, 3), np.uint8)
    made = Image.fromarray(pixels)
    return Media("image", mmhash.key(made), (made,))


def video() -> Media:
    """Return a video that no engine has seen."""
    frames = tuple(image().frames[0] for _ in range(FRAMES))
    key = mmhash.key(np.stack([np.asarray(frame) for frame in frames]))
    return Media("video", key, frames)


def film() -> Media:
    """Return a video file that no engine has seen."""
    file = make_video("h264.mp4", size=(128, 96), seed=secrets.randbits(32))
    return Media("video", mmhash.key(file), (), "mp4", file)


def send(engine: Engine, prompt: Prompt, **options: Any) -> tuple[list[int], int]:
    """Send a prompt with its media's hashes. Return its token ids, and how many were cached."""
    answer = post(engine, body(engine, prompt), **options)
    assert answer.status_code == 200, answer.text[:2000]
    content = answer.json()
    if engine.name == "vllm":
        return content["prompt_token_ids"], cached(content)
    ids = content.get("prompt_token_ids") or sglang_ids(engine, prompt)
    assert len(ids) == content["meta_info"]["prompt_tokens"]
    return ids, cached(content)


def post(
    engine: Engine, content: dict[str, Any], *, guarded: bool = False, tenant: str | None = None
) -> httpx.Response:
    """Send a request to the engine's own route for prompts with hashes."""
    path = "/v1/chat/completions" if engine.name == "vllm" else "/generate"
    return engine.post(path, content, headers=headers(guarded=guarded, tenant=tenant))


def headers(*, guarded: bool = False, tenant: str | None = None) -> dict[str, str]:
    """Return the headers that switch the guard on and name the tenant."""
    switch = {"x-live-guard": "on"} if guarded else {}
    return switch | ({} if tenant is None else {"x-mmhash-tenant": tenant})


def body(engine: Engine, prompt: Prompt) -> dict[str, Any]:
    """Return the request: a chat for vLLM, text for SGLang's /generate."""
    if engine.name == "vllm":
        parts: list[dict[str, Any]] = [part(one, vllm.uuid(one.key)) for one in prompt.media]
        parts.append({"type": "text", "text": prompt.text})
        content: dict[str, Any] = {
            "model": prompt.lora or "tiny",
            "max_tokens": 1,
            "return_token_ids": True,
            "messages": [{"role": "user", "content": parts}],
        }
    else:
        content = {
            "text": "".join(TEXTS[one.kind] for one in prompt.media) + prompt.text,
            "sampling_params": {"max_new_tokens": 1},
        }
        for kind in {one.kind for one in prompt.media}:
            content[f"{kind}_data"] = [one.url for one in prompt.media if one.kind == kind]
        if any(one.file for one in prompt.media):
            content["return_prompt_token_ids"] = True  # only the decoder knows how many there are
        if prompt.media:
            content["mm_hashes"] = [sglang.mm_hash(one.key) for one in prompt.media]
    if prompt.salt is not None:
        content["cache_salt"] = prompt.salt
    return content


def part(media: Media, uuid: str | None) -> dict[str, Any]:
    """Return a part of a chat request."""
    name = f"{media.kind}_url"
    return {"type": name, name: {"url": media.url}} | ({} if uuid is None else {"uuid": uuid})


def tags(
    engine: Engine, prompt: Prompt, tenant: str | None, *, secret: bytes = SECRET
) -> list[str]:
    """Return the tags of a prompt's media, as a service with the guard's secret signs them."""
    return [
        sign_tag(
            one.key,
            engine=engine.name,
            tenant=tenant,
            expires=int(time.time()) + 600,
            secrets=[secret],
        )
        for one in prompt.media
    ]


def cached(content: dict[str, Any]) -> int:
    """Return how many tokens the engine reports as cached."""
    if "meta_info" in content:
        return int(content["meta_info"]["cached_tokens"])
    details = (content.get("usage") or {}).get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or 0)


def names(engine: Engine, prompt: Prompt, ids: list[int]) -> list[int]:
    """Return the names of all whole blocks, as mmhash computes them from ids and media.

    The tests of names use mmhash here and nowhere else.
    """
    release = engine.environment.release
    if engine.name == "vllm":
        spans = [
            vllm.Span(vllm.uuid(one.key), start, end - start)
            for one, (start, end) in zip(prompt.media, runs(engine, ids), strict=True)
        ]
        keys = vllm.block_keys(
            ids,
            engine.block_size,
            version=release,
            items=spans,
            cache_salt=prompt.salt,
            lora=None if prompt.lora is None else vllm.Lora(prompt.lora, engine.loras[prompt.lora]),
            block_algorithm=engine.algorithm,
            seed=engine.seed,
        )
        return [vllm.event_id(key) for key in keys]
    spans_ = [
        (start, end, one.key)
        for one, (start, end) in zip(prompt.media, runs(engine, ids), strict=True)
    ]
    padded = sglang.pad_input_ids(ids, spans_, version=release)
    whole = len(padded) // engine.block_size * engine.block_size
    keys_ = sglang.event_keys(
        padded[:whole], engine.block_size, cache_salt=prompt.salt, version=release
    )
    return [sglang.event_id(key) for key in keys_]


def runs(engine: Engine, ids: list[int]) -> list[tuple[int, int]]:
    """Return where placeholders begin and end."""
    pads = {tokenizer(engine).token_to_id(f"<|{kind}_pad|>") for kind in ("image", "video")}
    bounds = [0, *(i for i in range(1, len(ids)) if ids[i] != ids[i - 1]), len(ids)]
    return [(start, end) for start, end in pairwise(bounds) if start < end and ids[start] in pads]


def sglang_ids(engine: Engine, prompt: Prompt) -> list[int]:
    """Return the ids that SGLang's processor would make of a prompt for /generate."""
    pad = "<|image_pad|>"
    text = "".join(IMAGE_TEXT.replace(pad, pad * one.tokens) for one in prompt.media)
    ids: list[int] = tokenizer(engine).encode(text + prompt.text, add_special_tokens=False).ids
    return ids


def tokenizer(engine: Engine) -> Tokenizer:
    """Return the model's tokenizer."""
    return _tokenizer(str(engine.environment.model("qwen2_vl") / "tokenizer.json"))


@cache
def _tokenizer(path: str) -> Tokenizer:
    return Tokenizer.from_file(path)


def published(stored: list[BlocksStored]) -> list[int]:
    """Return the ids of stored blocks, in order, unsigned."""
    return [one for event in stored for one in event.ids]


def data_url(data: bytes, format_: str) -> str:
    """Return an image file as a data: URL."""
    return f"data:image/{format_.lower()};base64,{base64.b64encode(data).decode()}"


def _encoded(frame: Image.Image, format_: str) -> str:
    buffer = io.BytesIO()
    frame.save(buffer, format_)
    return base64.b64encode(buffer.getvalue()).decode()


def guard_settings(engine: str) -> dict[str, str]:
    """Return the environment of a guard that takes tenants from the header."""
    return {
        "MMHASH_GUARD_ENGINE": engine,
        "MMHASH_GUARD_SECRETS": json.dumps([SECRET.hex()]),
        "MMHASH_GUARD_TENANT": "@header",
    }
