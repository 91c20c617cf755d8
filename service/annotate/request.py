"""A request from its text to the text with hashes put in."""

from typing import Any, NamedTuple

from mmhash import Digest
from mmhash.engines import request_fields, sglang
from mmhash_service.annotate.chat import find_in_sglang_chat, find_in_vllm_chat
from mmhash_service.annotate.content import hash_with_content
from mmhash_service.annotate.generate import find_in_generate
from mmhash_service.annotate.options import with_options
from mmhash_service.annotate.raw_json import Object, open_body, write
from mmhash_service.annotate.slots import HashSlot, Media
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import Item, JsonItem
from mmhash_service.engines import resolve_release
from mmhash_service.guard.caller_hashes import TAGS
from mmhash_service.items.json_items import hash_items
from mmhash_service.request_fields import CALLER_HASHES
from mmhash_service.runtime.context import RequestContext


class _Opened(NamedTuple):
    """A request that waits for its hashes."""

    body: Object
    places: list[HashSlot]
    items: dict[Media, JsonItem]
    # What of an engine's spelling of a key goes in; what SGLang's chat requests carry is none.
    spelled: str | None


async def annotate(call: RequestContext, text: bytes) -> tuple[bytes, list[Item]]:
    """The request with a hash at each of its media that take one, and the item of each."""
    call.admission.hold(2 * len(text))  # what is written, and the answer around it
    opened = await call.work.run(_open, call, text)
    if opened.spelled is None:
        item_of, content_hashes = await hash_with_content(call, opened.items)
        items = [item_of[place.media] for place in opened.places]
        hashes = [content_hashes[place.media] for place in opened.places]
        # The engine is told no key.
        signed = [Digest("blake3", bytes.fromhex(text[7:])) for text in content_hashes.values()]
        tags = [call.signer.tag(digest) for digest in signed] if call.signer else []
    else:
        found = await hash_items(call, list(opened.items.values()))
        item_of = dict(zip(opened.items, (one[0] for one in found), strict=True))
        made = {
            (place.media, place.options): _name_options(call, item_of[place.media], place.options)
            for place in opened.places
        }
        items = [made[place.media, place.options] for place in opened.places]
        (engine,) = call.engines
        hashes = [item.engines[engine][opened.spelled] for item in items]
        tags = [item.tag for item in items if item.tag is not None]
    if call.signer is not None:
        opened.body[TAGS] = list(dict.fromkeys(tags))
    return await call.work.run(_fill, opened, hashes), items


def _name_options(call: RequestContext, item: Item, options: str) -> Item:
    """The item as the engine has to know it under these options."""
    if not options:
        return item
    key = with_options(Digest("blake3", bytes.fromhex(item.key)), options)
    update: dict[str, Any] = {
        "engines": {engine: request_fields(key, engine) for engine in call.engines}
    }
    if call.signer is not None:
        update["tag"] = call.signer.tag(key)
    return item.model_copy(update=update)


def _open(call: RequestContext, text: bytes) -> _Opened:
    body = open_body(text)
    (engine,) = call.engines
    for name in (TAGS, *CALLER_HASHES[engine.partition("@")[0]]):
        body.pop(name, None)
    is_chat = "messages" in body
    if engine.startswith("sglang"):
        spelled = _sglang_field(engine, is_chat=is_chat)
        places = find_in_sglang_chat(body) if is_chat else find_in_generate(body)
    elif is_chat:
        spelled = "uuid"
        places = find_in_vllm_chat(body, resolve_release(engine))
    else:
        raise Problem("invalid-json")
    if len(places) > call.settings.max_items:
        raise Problem("too-many-items")
    media = dict.fromkeys(place.media for place in places)
    return _Opened(body, places, {of: of.item(pixels=call.pixels) for of in media}, spelled)


def _sglang_field(engine: str, *, is_chat: bool) -> str | None:
    recipe = sglang.RELEASES.recipe(resolve_release(engine))
    # Content hashes came with the release that namespaces came with.
    if not (recipe.namespaces if is_chat else recipe.mm_hashes):
        raise Problem("no-field")
    return None if is_chat else "mm_hash"


def _fill(opened: _Opened, hashes: list[str]) -> bytes:
    for place, hash_ in zip(opened.places, hashes, strict=True):
        place.container[place.name] = hash_
    return write(opened.body)
