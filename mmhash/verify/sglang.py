"""SGLang: prompts with `mm_hashes`, and the names that its pages must have."""

from collections.abc import Iterator
from typing import Any

import httpx

from mmhash.engines import sglang
from mmhash.errors import InputValueError
from mmhash.kvindex.events import BlocksStored
from mmhash.kvindex.table import block_id
from mmhash.verify.prompts import Prompt, Sample, members, request

# Text by which models take an image; the first that gives pad values is the model's.
IMAGE_TEXTS = (
    "<|vision_start|><|image_pad|><|vision_end|>",
    "<image>",
    "<|image|>",
    "<start_of_image>",
    "[IMG]",
    "<|image_1|>",
)


def release(client: httpx.Client) -> str | None:
    """Return the release of a running SGLang; None if the server is not one."""
    version = _server_info(client).get("version")
    return str(version) if version else None


def is_rust(client: httpx.Client) -> bool:
    """Return True if SGLang's server is the one in Rust, which takes no guard."""
    states = _server_info(client).get("internal_states")
    first = states[0] if isinstance(states, list) and states else None
    return isinstance(first, dict) and "rust_mm_transport" in first


def _server_info(client: httpx.Client) -> dict[str, Any]:
    for path in ("/server_info", "/get_server_info"):
        answer = client.get(path)
        if answer.status_code == httpx.codes.OK:
            return members(answer)
    return {}


def send(client: httpx.Client, prompt: Prompt, image_text: str) -> None:
    """Send a prompt as a native request, each image with its key in `mm_hashes`."""
    text = prompt.text + "".join(image_text for _ in prompt.images)
    body: dict[str, Any] = {"text": text, "sampling_params": {"max_new_tokens": 1}}
    if prompt.images:
        body["image_data"] = [image.data_url(prompt.image_format) for image in prompt.images]
        body["mm_hashes"] = [sglang.mm_hash(image.key) for image in prompt.images]
    if prompt.salt is not None:
        body["cache_salt"] = prompt.salt
    request(client, "/generate", body)


class Names:
    """The names that pages must have, chained from page to page by the events' own parents."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._keys: dict[int, str] = {}

    def check(self, event: BlocksStored, prompt: Prompt) -> Iterator[bool]:
        """Yield True for each page that has the right name, and False for the others."""
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
        """Return a page's key; None if the release has no such tokens or namespaces."""
        version = self._version
        try:
            if parent is not None:
                return sglang.page_keys(tokens, len(tokens), prior=parent, version=version)[0]
            return sglang.event_keys(tokens, len(tokens), cache_salt=prompt.salt, version=version)[
                0
            ]
        except InputValueError:
            return None


def holds_images(events: list[BlocksStored], images: tuple[Sample, ...], version: str) -> bool:
    """Return True if the stored tokens hold each image's pad values."""
    tokens = {token for event in events for token in event.tokens}
    return all(set(sglang.pad_values(image.key, version=version)) <= tokens for image in images)
