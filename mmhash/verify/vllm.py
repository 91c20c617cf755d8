"""vLLM: prompts with uuids, and the keys that their blocks must have."""

from collections.abc import Iterator
from typing import Any

import httpx

from mmhash.engines import vllm
from mmhash.kvindex.events import BlocksStored
from mmhash.verify.prompts import Prompt, Sample, members, request

ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")


def release(client: httpx.Client) -> str | None:
    """Return the release of a running vLLM, or None if the server is not vLLM."""
    answer = client.get("/version")
    version = members(answer).get("version") if answer.status_code == 200 else None
    return str(version).split("+")[0] if version else None


def send(client: httpx.Client, model: str, prompt: Prompt) -> None:
    """Send a prompt as a chat request; each image has its key as uuid."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": prompt.text}]
    parts += [
        {
            "type": "image_url",
            "image_url": {"url": image.data_url(prompt.image_format)},
            "uuid": vllm.uuid(image.key),
        }
        for image in prompt.images
    ]
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": 1,
        "messages": [{"role": "user", "content": parts}],
    }
    if prompt.salt is not None:
        body["cache_salt"] = prompt.salt
    request(client, "/v1/chat/completions", body)


class Names:
    """The names that blocks must have, chained by the parents in the events."""

    def __init__(self, version: str, algorithm: str, seed: str | None) -> None:
        self._version, self._algorithm, self._seed = version, algorithm, seed
        self._keys: dict[int, bytes] = {}

    def check(self, event: BlocksStored, prompt: Prompt) -> Iterator[bool]:
        """Yield for each block whether it has the right name."""
        size = event.block_size
        parent: bytes | None = b"" if event.parent is None else self._keys.get(event.parent)
        extras = event.extra_keys or [None] * len(event.ids)
        for index, name in enumerate(event.ids):
            if parent is None or index >= len(extras):
                yield False
                continue
            tokens = event.tokens[index * size : (index + 1) * size]
            extra = self._extra(extras[index], prompt)
            parent = vllm.block_key(
                tokens,
                parent=parent,
                extra=extra,
                version=self._version,
                block_algorithm=self._algorithm,
                seed=self._seed,
            )
            self._keys[name] = parent
            yield name == vllm.event_id(parent)

    def _extra(self, published: Any, prompt: Prompt) -> vllm.ExtraKeys:
        """Return what the block must bind, given the published values and the prompt."""
        if published is None:
            return None
        kind = vllm.RELEASES.recipe(self._version).extra_keys
        identifiers = {vllm.uuid(image.key) for image in prompt.images}
        extra: list[Any] = []
        for value in published:
            if isinstance(value, list) and len(value) == 2 and value[0] in identifiers:
                placed = (value[0], value[1])
                extra.append({"tagged": ("mm", *placed), "placed": placed, "bare": value[0]}[kind])
            elif value in identifiers and kind == "bare":
                extra.append(value)
            elif isinstance(value, str) and value == prompt.salt:
                extra.append(("cache_salt", value) if kind == "tagged" else value)
            else:
                return ("unexplained",)
        return tuple(extra)


def holds_images(events: list[BlocksStored], images: tuple[Sample, ...]) -> bool:
    """Return True if the stored blocks bind each image's uuid."""
    bound = {
        value[0] if isinstance(value, list) and value else value
        for event in events
        for extra in event.extra_keys or []
        for value in extra or []
    }
    return {vllm.uuid(image.key) for image in images} <= bound
