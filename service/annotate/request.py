"""A request from its text to the text with hashes put in."""

from typing import NamedTuple

from mmhash import Digest
from mmhash.engines import sglang
from mmhash_service.annotate.chat import find_in_chat
from mmhash_service.annotate.content import hash_with_content
from mmhash_service.annotate.generate import find_in_generate
from mmhash_service.annotate.places import Media, Place
from mmhash_service.annotate.rawjson import Object, open_body, write
from mmhash_service.call import Call
from mmhash_service.caller_hashes import TAGS
from mmhash_service.engines import release_of
from mmhash_service.items import hash_items
from mmhash_service.problems import Problem
from mmhash_service.schemas import Item, JsonItem

# Members of SGLang's /generate that hold callers' hashes.
_CALLERS = ("mm_hashes", "mm_content_hashes")


class _Opened(NamedTuple):
    """A request that waits for its hashes."""

    body: Object
    places: list[Place]
    items: dict[Media, JsonItem]
    # What of an engine's spelling of a key goes in; what SGLang's chat requests carry is none.
    spelled: str | None


async def annotate(call: Call, text: bytes) -> tuple[bytes, list[Item]]:
    """The request with a hash at each of its media that take one, and the item of each."""
    call.admission.hold(2 * len(text))  # what is written, and the answer around it
    opened = await call.work.run(_open, call, text)
    if opened.spelled is None:
        item_of, hashes = await hash_with_content(call, opened.items)
    else:
        found = await hash_items(call, list(opened.items.values()))
        item_of = dict(zip(opened.items, (one[0] for one in found), strict=True))
        (engine,) = call.engines
        hashes = {of: item.engines[engine][opened.spelled] for of, item in item_of.items()}
    if call.signer is not None:
        if opened.spelled is None:  # the engine is told no key
            signed = [Digest("blake3", bytes.fromhex(text[7:])) for text in hashes.values()]
            tags = [call.signer.tag(digest) for digest in signed]
        else:
            tags = [item.tag or "" for item in item_of.values()]
        opened.body[TAGS] = list(dict.fromkeys(tags))
    request = await call.work.run(_fill, opened, hashes)
    return request, [item_of[place.media] for place in opened.places]


def _open(call: Call, text: bytes) -> _Opened:
    body = open_body(text)
    body.pop(TAGS, None)
    (engine,) = call.engines
    is_chat = "messages" in body
    if engine.startswith("sglang"):
        spelled = _sglang_field(engine, is_chat=is_chat)
        for name in _CALLERS:
            body.pop(name, None)
        places = find_in_chat(body, "sglang") if is_chat else find_in_generate(body)
    elif is_chat:
        spelled = "uuid"
        places = find_in_chat(body, "vllm")
    else:
        raise Problem("invalid-json")
    if len(places) > call.settings.max_items:
        raise Problem("too-many-items")
    media = dict.fromkeys(place.media for place in places)
    return _Opened(body, places, {of: of.item(pixels=call.pixels) for of in media}, spelled)


def _sglang_field(engine: str, *, is_chat: bool) -> str | None:
    recipe = sglang.RELEASES.recipe(release_of(engine))
    # Content hashes came with the release that namespaces came with.
    if not (recipe.namespaces if is_chat else recipe.mm_hashes):
        raise Problem("no-field")
    return None if is_chat else "mm_hash"


def _fill(opened: _Opened, hashes: dict[Media, str]) -> bytes:
    for place in opened.places:
        place.holder[place.name] = hashes[place.media]
    return write(opened.body)
