"""Attacks on a running engine's prefix cache, with and without the guard."""

import hashlib
import io
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import torch

from mmhash.engines import sglang, vllm
from tests.live import prompts, results
from tests.live.engines import Engine, only
from tests.live.prompts import IMAGE_TEXT, Media, Prompt, image, video

RELEASES = ("vllm@0.32.0", "sglang@0.5.23", "sglang@0.5.20")

# The side of an image whose features are sent as numbers: the guard allows 150000 numbers.
SMALL = 56

UNGUARDED = "without"
GUARDED = "with the guard"
PLUGIN = "with the plugin"


class Side(NamedTuple):
    """An engine, and whether requests go through its guard."""

    engine: Engine
    is_guarded: bool

    @property
    def column(self) -> str:
        """Return this side's column in the table of results."""
        if not self.is_guarded:
            return UNGUARDED
        return PLUGIN if self.engine.guard == "plugin" else GUARDED

    def post(self, path: str, body: dict[str, Any], tenant: str) -> httpx.Response:
        """Send a request as a tenant."""
        switch = self.is_guarded and self.engine.guard == "switched"
        headers = prompts.headers(guarded=switch, tenant=tenant)
        return self.engine.post(path, body, headers=headers)

    def store(self, prompt: Prompt) -> list[int]:
        """Send the victim's prompt, with its own hashes and tags, and return its token ids."""
        body = prompts.body(self.engine, prompt)
        _sign(self.engine, body, prompt, "victim")
        answer = self.post(_route(self.engine), body, "victim")
        assert answer.status_code == 200, answer.text[:2000]
        if self.engine.name == "sglang":
            return prompts.sglang_ids(self.engine, prompt)
        ids: list[int] = answer.json()["prompt_token_ids"]
        return ids


class Attack(NamedTuple):
    """A request by an attacker, and the route that takes it."""

    path: str
    body: dict[str, Any]


def _sign(engine: Engine, body: dict[str, Any], prompt: Prompt, tenant: str) -> None:
    """Put a tenant's tags where the guard reads them. The plugin's guard reads them as hashes."""
    tags = prompts.tags(engine, prompt, tenant)
    if engine.guard != "plugin":
        body["mmhash_tags"] = tags
    elif engine.name == "sglang":
        body["mm_hashes"] = tags
    else:
        parts = body["messages"][0]["content"]
        for part, tag in zip(parts, tags, strict=False):  # media come first
            part["uuid"] = tag


def _route(engine: Engine) -> str:
    return "/v1/chat/completions" if engine.name == "vllm" else "/generate"


def _sides(engine: Engine) -> Iterator[Side]:
    if engine.guard in {None, "switched"}:
        yield Side(engine, False)
    if engine.guard is not None:
        yield Side(engine, True)


def _try(engine: Engine, kind: str, make: Callable[[Side], Attack]) -> None:
    """Attack with and without the guard, and record how many cached tokens the attacker got."""
    for side in _sides(engine):
        attack = make(side)
        answer = side.post(attack.path, attack.body, "attacker")
        number = prompts.cached(answer.json()) if answer.status_code == 200 else 0
        row = f"{engine.spelling}: {kind}"
        results.record("attacks", row, side.column, _cell(answer, number))
        print(kind, side.column, answer.status_code, number, answer.text[:300])
        assert number == 0 or not side.is_guarded


def _cell(answer: httpx.Response, number: int) -> str:
    if answer.status_code == 200:
        return str(number)
    return f"0, {'fails' if answer.status_code >= 500 else 'refused'} ({answer.status_code})"


def _as_victims(side: Side, **changes: Any) -> Prompt:
    """Return the attacker's prompt: the victim's, but with another image under the same hash."""
    victim = Prompt((image(),))
    side.store(victim)
    return Prompt((Media("image", victim.media[0].key, image().frames),), victim.text, **changes)


def test_forged_hash(engine: Engine) -> None:
    """The attacker sends its own image under the victim's key."""

    def make(side: Side) -> Attack:
        return Attack(_route(engine), prompts.body(engine, _as_victims(side)))

    _try(engine, "forged uuid" if engine.name == "vllm" else "forged mm_hashes", make)


def test_tag_of_another_tenant(engine: Engine) -> None:
    """The attacker sends the victim's key with its tag, as read from the victim's request.

    The plugin has one tenant, and accepts that tenant's tags from everyone. Here the tag belongs to
    another tenant.
    """

    def make(side: Side) -> Attack:
        prompt = _as_victims(side)
        body = prompts.body(engine, prompt)
        _sign(engine, body, prompt, "another" if engine.guard == "plugin" else "victim")
        return Attack(_route(engine), body)

    _try(engine, "another tenant's hash and tag", make)


def test_tag_of_this_tenant(engine: Engine) -> None:
    """This is no attack: a hash with its own tag passes the guard, and the cache hits."""
    for side in _sides(engine):
        prompt = Prompt((image(),))
        side.store(prompt)
        body = prompts.body(engine, prompt)
        _sign(engine, body, prompt, "victim")
        answer = side.post(_route(engine), body, "victim")
        number = prompts.cached(answer.json())
        row = f"{engine.spelling}: no attack: the tenant's own hash and tag"
        results.record("attacks", row, side.column, str(number))
        assert number > 0


def test_swapped_hashes(engine: Engine) -> None:
    """The attacker swaps the victim's images, but not their hashes."""

    def make(side: Side) -> Attack:
        first, second = image(), image()
        victim = Prompt((first, second))
        side.store(victim)
        swapped = (
            Media("image", first.key, second.frames),
            Media("image", second.key, first.frames),
        )
        return Attack(_route(engine), prompts.body(engine, Prompt(swapped, victim.text)))

    _try(engine, "swapped hashes of two images", make)


def test_salt_of_the_victim(engine: Engine) -> None:
    """The attacker sends the victim's prompt, but has to guess its salt."""

    def make(side: Side) -> Attack:
        victim = Prompt(salt=secrets.token_hex(8))
        side.store(victim)
        return Attack(_route(engine), prompts.body(engine, Prompt(text=victim.text, salt="guess")))

    _try(engine, "a guessed cache_salt", make)


@only("vllm")
def test_hash_without_media(engine: Engine) -> None:
    """The attacker has no image at all."""

    def make(side: Side) -> Attack:
        body = prompts.body(engine, _as_victims(side))
        body["messages"][0]["content"][0]["image_url"] = None
        return Attack(_route(engine), body)

    _try(engine, "uuid without media", make)


@only("vllm")
def test_encoder_peer(engine: Engine) -> None:
    """The attacker names a peer that has the victim's encoder output."""

    def make(side: Side) -> Attack:
        prompt = _as_victims(side)
        body = prompts.body(engine, prompt)
        del body["messages"][0]["content"][0]["uuid"]
        peer = {"peer_host": "127.0.0.1", "peer_port": 9}
        body["ec_transfer_params"] = {vllm.uuid(prompt.media[0].key): peer}
        return Attack(_route(engine), body)

    _try(engine, "ec_transfer_params", make)


@only("vllm")
def test_tokens_from_a_peer(engine: Engine) -> None:
    """The attacker sends the victim's token ids as a peer's output, in place of its own prompt."""

    def make(side: Side) -> Attack:
        ids = side.store(Prompt())
        body = prompts.body(engine, Prompt())
        body["kv_transfer_params"] = {"prompt_token_ids": ids, "do_remote_decode": False}
        return Attack(_route(engine), body)

    _try(engine, "kv_transfer_params.prompt_token_ids", make)


@only("vllm")
def test_features_by_hash(engine: Engine) -> None:
    """The attacker sends the victim's hash as features that the engine has cached."""

    def make(side: Side) -> Attack:
        victim = Prompt((image(),))
        ids = side.store(victim)
        ((start, end),) = prompts.runs(engine, ids)
        features = {
            "mm_hashes": {"image": [vllm.uuid(victim.media[0].key)]},
            "mm_placeholders": {"image": [{"offset": start, "length": end - start}]},
            "kwargs_data": {"image": [None]},
        }
        body = {
            "model": "tiny",
            "token_ids": ids,
            "features": features,
            "sampling_params": {"max_tokens": 1},
        }
        return Attack("/inference/v1/generate", body)

    _try(engine, "mm_hashes of features", make)


@only("vllm")
@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("kind", ["image", "video"])
def test_embedding(engine: Engine, kind: str, is_named: bool) -> None:
    """The attacker sends its own embedding instead of the victim's media."""

    def make(side: Side) -> Attack:
        victim = Prompt((image() if kind == "image" else video(),))
        ids = side.store(victim)
        ((start, end),) = prompts.runs(engine, ids)
        (media,) = victim.media
        body = prompts.body(engine, victim)
        name = f"{kind}_embeds"
        side_of_grid = media.frames[0].width // 14
        frames = (end - start) * 4 // side_of_grid**2
        part = {"type": name, name: _embedding(kind, end - start, (frames, *[side_of_grid] * 2))}
        body["messages"][0]["content"][0] = part
        if is_named:
            part["uuid"] = vllm.uuid(media.key)
        return Attack(_route(engine), body)

    _try(engine, f"{kind}_embeds with{'' if is_named else 'out'} a forged uuid", make)


def _embedding(kind: str, tokens: int, grid: tuple[int, ...]) -> dict[str, str]:
    """Return the embedding of an item, as a content part holds it."""
    rows = np.random.default_rng().standard_normal((tokens, 128), np.float32)
    arrays = {f"{kind}_embeds": torch.from_numpy(rows), f"{kind}_grid_thw": torch.tensor(grid)}
    return {name: _saved(array) for name, array in arrays.items()}


def _saved(tensor: torch.Tensor) -> str:
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    return b64encode(buffer.getvalue()).decode()


@only("sglang")
@pytest.mark.parametrize("place", ["mm_content_hashes", "image_data", "image_url"])
def test_content_hash(engine: Engine, place: str) -> None:
    """The attacker sends its own image under the SHA-256 of the victim's file."""

    def make(side: Side) -> Attack:
        victim = Prompt((image(),))
        digest = _file_digest(victim.media[0])
        tags = {"mmhash_tags": prompts.tags(engine, victim, "victim")}
        path, body = _with_content_hash(place, victim.media[0], victim.text, digest)
        stored = side.post(path, body | tags, "victim")
        assert stored.status_code in {200, 400}, stored.text
        print(stored.status_code, stored.text[:300])
        return Attack(*_with_content_hash(place, image(), victim.text, digest))

    _try(engine, f"content hash in {place}", make)


def _file_digest(media: Media) -> str:
    data = b64decode(media.url.partition(",")[2])
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _with_content_hash(
    place: str, media: Media, text: str, digest: str
) -> tuple[str, dict[str, Any]]:
    if place == "image_url":
        part = {"type": "image_url", "image_url": {"url": media.url, "content_hash": digest}}
        content = [part, {"type": "text", "text": text}]
        messages = [{"role": "user", "content": content}]
        return "/v1/chat/completions", {"model": "tiny", "messages": messages, "max_tokens": 1}
    body = {"text": IMAGE_TEXT + text, "sampling_params": {"max_new_tokens": 1}}
    if place == "image_data":
        return "/generate", body | {"image_data": [{"url": media.url, "content_hash": digest}]}
    return "/generate", body | {"image_data": [media.url], "mm_content_hashes": [digest]}


@only("sglang")
@pytest.mark.parametrize("fields", ["hash", "hash and pad_value"])
@pytest.mark.parametrize("format_", ["processor_output", "precomputed_embedding"])
def test_preset_hash(engine: Engine, fields: str, format_: str) -> None:
    """The attacker sends its own features, with the victim's hash preset."""

    def make(side: Side) -> Attack:
        victim = Prompt((image(SMALL),))
        ids = side.store(victim)
        key = victim.media[0].key
        pads = sglang.pad_values(key, version=engine.environment.release)
        presets: dict[str, dict[str, Any]] = {
            "hash": {"hash": key.u64},
            "hash and pad_value": {"hash": key.u64, "pad_value": pads[0]},
        }
        is_pixels = format_ == "processor_output"
        name = "pixel_values" if is_pixels else "feature"
        patches = (SMALL // 14) ** 2
        rows, width = (patches, 1176) if is_pixels else (patches // 4, 128)
        item: dict[str, Any] = {
            "format": format_,
            name: [[0.5] * width] * rows,
            "image_grid_thw": [[1, SMALL // 14, SMALL // 14]],
            **presets[fields],
        }
        body = {
            "input_ids": ids,
            "image_data": [item],
            "sampling_params": {"max_new_tokens": 1},
        }
        return Attack("/generate", body)

    _try(engine, f"preset {fields} of {format_}", make)


@only("sglang")
def test_embedding_of_another_image(engine: Engine) -> None:
    """The attacker stores its image's embedding under the hash of an image that the victim sends.

    The text in front of the image differs, so nothing comes from the prefix cache.
    """
    for side in _sides(engine):
        victims, attackers = image(), image()
        text = secrets.token_hex(60)
        forged = Media("image", victims.key, attackers.frames)
        _probabilities(side, forged, secrets.token_hex(60), "attacker")
        answered = _probabilities(side, victims, text, "victim", is_signed=True)
        expected = _probabilities(side, victims, text, "victim", is_named=False)
        of_attackers = _probabilities(side, attackers, text, "victim", is_named=False)
        assert expected != of_attackers
        is_poisoned = answered == of_attackers
        row = f"{engine.spelling}: the victim's image answered as the attacker's (embedding cache)"
        results.record("attacks", row, side.column, "yes" if is_poisoned else "no")
        print(side.column, answered, expected, of_attackers)
        assert is_poisoned or answered == expected
        assert not (is_poisoned and side.is_guarded)


def _probabilities(
    side: Side,
    media: Media,
    text: str,
    tenant: str,
    *,
    is_named: bool = True,
    is_signed: bool = False,
) -> list[tuple[int, float]]:
    """Return the likeliest next tokens and their log-probabilities, to three digits."""
    prompt = Prompt((media,), text)
    body = prompts.body(side.engine, prompt)
    body["text"] = text + IMAGE_TEXT
    body["sampling_params"]["temperature"] = 0
    body |= {"return_logprob": True, "top_logprobs_num": 5}
    if not is_named:
        del body["mm_hashes"]
    if is_signed:
        _sign(side.engine, body, prompt, tenant)
    answer = side.post("/generate", body, tenant)
    assert answer.status_code == 200, answer.text[:2000]
    (first,) = answer.json()["meta_info"]["output_top_logprobs"]
    return [(token, round(value, 3)) for value, token, *_ in first]
