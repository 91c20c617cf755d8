"""Check a running engine: send prompts, read KV events, compare names."""

from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from mmhash.arguments import header_value
from mmhash.engines import registry
from mmhash.engines.sglang import mm_hash
from mmhash.errors import InputValueError, ServiceError
from mmhash.io.names import reason
from mmhash.verify import sglang, vllm
from mmhash.verify.prompts import Prompt, members, prompts
from mmhash.verify.subscriber import Subscriber

if TYPE_CHECKING:
    from mmhash.engines.engine import Server
    from mmhash.kvindex.events import BlocksStored

# The first event also waits until the subscription is set up.
_FIRST_S = 10.0
_TIMEOUT_S = 60.0


class Report(NamedTuple):
    """The result of one check."""

    engine: str
    # How many blocks the engine stored, and how many have the name that the recipe gives.
    blocks: int
    named: int
    # Prompts whose images are not in the stored blocks.
    missing: tuple[str, ...]
    # The value of vLLM's --prefix-caching-hash-algo that fits best.
    block_algorithm: str | None = None
    # Whose hashes name media in SGLang: the request's, the Rust server's, or the plugin's.
    server: "Server" = "python"
    # What mmhash's plugin does in this SGLang.
    plugin: tuple[str, ...] | None = None

    @property
    def is_correct(self) -> bool:
        """Return True if all blocks were named and all images found."""
        return 0 < self.blocks == self.named and not self.missing

    def fields(self) -> dict[str, Any]:
        """Return the report as the members of a JSON object."""
        return {"is_correct": self.is_correct, **self._asdict()}

    def line(self) -> str:
        """Return the report on one line."""
        verdict = "named correctly" if self.is_correct else "NOT named correctly"
        how = f" with {self.block_algorithm}" if self.block_algorithm and self.named else ""
        line = f"{self.engine}: {verdict}: {self.named} of {self.blocks} blocks{how}"
        if self.blocks == 0:
            line += "; no block was stored: are KV events and the prefix cache on? "
            line += "Is --events their endpoint?"
        if self.missing:
            line += f"; images not found in: {', '.join(self.missing)}"
        if self.server == "rust":
            line += "; it runs SGLang's Rust server (SGLANG_RUST_SERVER): no guard protects it"
        if self.plugin is not None:
            line += f"; mmhash's plugin is on: {', '.join(self.plugin)}"
        if self.server == "mmhash":
            line += "; images are named by the keys of their files (server=mmhash)"
        return line


def verify_engine(
    url: str,
    events: str,
    *,
    engine: str | None = None,
    seed: str | None = None,
    api_key: str | None = None,
) -> Report:
    """Send prompts with random images to a running engine and compare its KV events.

    Args:
        url: The engine's address, such as http://127.0.0.1:8000.
        events: The endpoint of the engine's KV events, such as tcp://127.0.0.1:5557.
        engine: The release whose recipe to compare with, such as `vllm@0.32.0`. By default it is
            the release that the server reports, or else the newest known older release.
        seed: vLLM's PYTHONHASHSEED, if it is set.
        api_key: The engine's API key.
    """
    headers = {}
    if api_key is not None:
        headers[b"Authorization"] = b"Bearer " + header_value("api_key", api_key)
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S, headers=headers) as client:
        try:
            release = engine or _detect(client)
        except httpx.HTTPError as error:
            raise ServiceError(f"no engine answers at {url}: {reason(error)}") from error
        # For an unknown release, check whether the nearest older recipe still holds.
        found, version = registry.find(release, or_older=engine is None)
        with Subscriber(events) as subscriber:
            if found.name == "vllm":
                report = _verify_vllm(client, subscriber, version, seed)
            elif found.name == "sglang":
                report = _verify_sglang(client, subscriber, version)
            else:
                raise InputValueError(f"only vllm and sglang can be verified, not {found.name}")
    if version not in release:
        return report._replace(engine=f"{release}, with the recipe of {version}")
    return report


def _detect(client: httpx.Client) -> str:
    for name, release in (("vllm", vllm.release), ("sglang", sglang.release)):
        if (version := release(client)) is not None:
            return f"{name}@{version}"
    raise ServiceError("the server reports no release: give it as engine, such as vllm@0.32.0")


def _verify_vllm(
    client: httpx.Client, subscriber: Subscriber, version: str, seed: str | None
) -> Report:
    model = _served_model(client)
    stored: list[tuple[Prompt, list[BlocksStored]]] = []
    for prompt in prompts():
        vllm.send(client, model, prompt)
        stored.append((prompt, subscriber.stored(first_s=_FIRST_S)))
    missing = tuple(
        prompt.name for prompt, events in stored if not vllm.holds_images(events, prompt.images)
    )
    reports = []
    for candidate in vllm.ALGORITHMS:
        try:
            names = vllm.Names(version, candidate, seed)
            right = [
                result
                for prompt, events in stored
                for event in events
                for result in names.check(event, prompt)
            ]
        except InputValueError:
            continue  # without PYTHONHASHSEED this algorithm has a random root
        reports.append(Report(f"vllm {version}", len(right), sum(right), missing, candidate))
    if not reports:
        raise InputValueError(
            f"the roots of vllm {version} are random without PYTHONHASHSEED: set it there, and "
            "pass it here as seed"
        )
    return max(reports, key=lambda report: report.named)


def _verify_sglang(client: httpx.Client, subscriber: Subscriber, version: str) -> Report:
    names = sglang.Names(version)
    plugin = sglang.plugin(client)
    names_files = "keys" in (plugin or ())
    right: list[bool] = []
    missing = []
    image_texts = list(sglang.IMAGE_TEXTS)
    for prompt in prompts():
        for image_text in list(image_texts) if prompt.images else image_texts[:1]:
            # A repeated text would store nothing, so each attempt needs a new text.
            attempt = prompt.with_new_text()
            keys = prompt.file_keys() if names_files else [one.key for one in prompt.images]
            hashes = [] if names_files else list(map(mm_hash, keys))
            sglang.send(client, attempt, image_text, hashes)
            events = subscriber.stored(first_s=_FIRST_S)
            right += [result for event in events for result in names.check(event, attempt)]
            if sglang.holds_images(events, keys, version):
                image_texts = [image_text] if prompt.images else image_texts
                break
        else:
            missing.append(prompt.name)
            # No placeholder fits, so the remaining prompts try only the first placeholder.
            image_texts = image_texts[:1]
    server: Server = "rust" if sglang.is_rust(client) else "python"
    return Report(
        f"sglang {version}",
        len(right),
        sum(right),
        tuple(missing),
        server="mmhash" if names_files else server,
        plugin=plugin,
    )


def _served_model(client: httpx.Client) -> str:
    """Return the name of the model that the engine serves."""
    try:
        answer = client.get("/v1/models")
        return str(members(answer)["data"][0]["id"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise ServiceError("the engine does not report the model that it serves") from error
