"""SGLang: prompts, and the names that their pages must have.

An image is named by `mm_hashes`, or by the key of its file if the plugin names media.
"""

from collections.abc import Iterator
from typing import Any

import httpx

from mmhash.digest import Digest
from mmhash.engines import sglang
from mmhash.errors import InputValueError
from mmhash.kvindex.events import BlocksStored
from mmhash.kvindex.table import block_id
from mmhash.verify.prompts import Prompt, members, request

# Placeholders of known models. The first placeholder that yields pad values is this model's.
IMAGE_TEXTS = (
    "<|vision_start|><|image_pad|><|vision_end|>",
    "<image>",
    "<|image|>",
    "<start_of_image>",
    "[IMG]",
    "<|image_1|>",
)


def release(client: httpx.Client) -> str | None:
    """Return the release of a running SGLang, or None if the server is not SGLang."""
    version = _server_info(client).get("version")
    return str(version) if version else None


def is_rust(client: httpx.Client) -> bool:
    """Return True if SGLang runs its server in Rust, which supports no guard."""
    states = _server_info(client).get("internal_states")
    first = states[0] if isinstance(states, list) and states else None
    return isinstance(first, dict) and "rust_mm_transport" in first


def plugin(client: httpx.Client) -> tuple[str, ...] | None:
    """Return what mmhash's plugin does in a running SGLang, or None without the plugin."""
    answer = client.get("/mmhash")
    if answer.status_code != httpx.codes.OK:
        return None
    features = members(answer).get("features")
    return tuple(map(str, features)) if isinstance(features, list) else None


def _server_info(client: httpx.Client) -> dict[str, Any]:
    for path in ("/server_info", "/get_server_info"):
        answer = client.get(path)
        if answer.status_code == httpx.codes.OK:
            return members(answer)
    return {}


def send(client: httpx.Client, prompt: Prompt, image_text: str, hashes: list[str]) -> None:
    """Send a prompt as a native request, with the hashes of its images if there are any."""
    text = prompt.text + "".join(image_text for _ in prompt.images)
    body: dict[str, Any] = {"text": text, "sampling_params": {"max_new_tokens": 1}}
    if prompt.images:
        body["image_data"] = [image.data_url(prompt.image_format) for image in prompt.images]
    if hashes:
        body["mm_hashes"] = hashes
    if prompt.salt is not None:
        body["cache_salt"] = prompt.salt
    request(client, "/generate", body)


class Names:
    """The names that pages must have, chained by the parents in the events."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._keys: dict[int, str] = {}

    def check(self, event: BlocksStored, prompt: Prompt) -> Iterator[bool]:
        """Yield for each page whether it has the right name."""
        size = event.block_size
        known = None if event.parent is None else self._keys.get(event.parent)
        is_root = event.parent is None
        for index, name in enumerate(event.ids):
            if known is None and not is_root:
                yield False
                continue
            tokens = event.tokens[index * size : (index + 1) * size]
            known = self._key(tokens, known, prompt)
            is_root = False
            if known is None:
                yield False
                continue
            self._keys[name] = known
            yield name == block_id(sglang.event_id(known))

    def _key(self, tokens: list[int], parent: str | None, prompt: Prompt) -> str | None:
        """Return a page's key, or None if the release has no such tokens or namespaces."""
        version = self._version
        try:
            if parent is not None:
                return sglang.page_keys(tokens, len(tokens), prior=parent, version=version)[0]
            return sglang.event_keys(tokens, len(tokens), cache_salt=prompt.salt, version=version)[
                0
            ]
        except InputValueError:
            return None


def holds_images(events: list[BlocksStored], keys: list[Digest], version: str) -> bool:
    """Return True if the stored tokens hold the pad values of each image's key."""
    tokens = {token for event in events for token in event.tokens}
    return all(set(sglang.pad_values(key, version=version)) <= tokens for key in keys)
