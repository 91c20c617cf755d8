"""A request from its text to the text with the hashes of its media."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from mmhash import Digest
from mmhash.engines.engine import AnnotateFormats, Engine
from mmhash.errors import InputError
from mmhash.tags import TAGS_MEMBER
from mmhash_service.annotate.chat import find_in_chat
from mmhash_service.annotate.content import hash_with_content
from mmhash_service.annotate.native import find_in_native, is_native, remove_callers_hashes
from mmhash_service.annotate.options import options_text, read_options
from mmhash_service.annotate.raw_json import Object, open_body, open_text, write
from mmhash_service.annotate.slots import HashSlot, Media
from mmhash_service.api.problems import InvalidPart, Problem
from mmhash_service.api.schemas.items import JsonItem
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem, names_of
from mmhash_service.items.json_items import hash_items
from mmhash_service.items.urls import hash_url, key_by_url

if TYPE_CHECKING:
    from mmhash.prompts import Model

FindModel = Callable[[str], "Model | None"]
"""From the name of a model, as a request has it, to the model; None if it is not configured."""

UrlTreatment = Literal["fetch", "url", "ignore"]
"""Media at http(s) URLs: keyed by their content, by the URL, or left without a hash."""

# A member of each request that is neither a chat nor native, and why it takes no hash.
_OTHER_APIS = {
    "prompt": "a completions request has no media: send it as it is, or a chat",
    "input": "a Responses request has no field for a hash: send a chat",
}


class _Slots(NamedTuple):
    """The slots of a request, and the hash that they take."""

    slots: list[HashSlot]
    # The request field of the key that is put in …
    hash_name: str
    # … unless there is a prefix: then it is this and the SHA-256 of the media's bytes.
    content_prefix: str | None = None


class _Opened(NamedTuple):
    """A request that waits for its hashes."""

    body: Object
    slots: list[HashSlot]
    items: dict[Media, JsonItem]
    hash_name: str
    content_prefix: str | None


class AnnotatedItem(NamedTuple):
    """The item of a slot, and the options under which the engine names it."""

    item: HashedItem
    options: str


async def annotate(
    context: RequestContext, text: bytes, find_model: FindModel, urls: UrlTreatment = "fetch"
) -> tuple[bytes, list[AnnotatedItem]]:
    """Return the request with a hash in each slot of its media, and the item of each slot."""
    context.admission.hold(2 * len(text))  # the request that is written, and the response around it
    opened = await context.work.run(_open, context, text, find_model, urls)
    prefix = opened.content_prefix
    if prefix is None:
        hash_remote = key_by_url if urls == "url" else hash_url
        results = await hash_items(context, list(opened.items.values()), hash_remote)
        item_of = dict(zip(opened.items, (result[0] for result in results), strict=True))
        items = [AnnotatedItem(item_of[slot.media], slot.options) for slot in opened.slots]
        return await context.work.run(_fill_keys, context, opened, items), items
    item_of, digests = await hash_with_content(context, opened.items)
    items = [AnnotatedItem(item_of[slot.media], slot.options) for slot in opened.slots]
    hashes = [f"{prefix}{digests[slot.media].hex()}" for slot in opened.slots]
    tags: list[str] = []
    if context.signer is not None:  # the engine gets no key, so the tags are for these hashes
        tags = [context.signer.tag(Digest("blake3", digest)) for digest in digests.values()]
    return await context.work.run(_fill, context, opened, hashes, tags), items


def _fill_keys(context: RequestContext, opened: _Opened, items: list[AnnotatedItem]) -> bytes:
    """Return the request with the hash that the engine takes of each item's key."""
    (engine,) = context.engines
    hash_of = {
        annotated: names_of(annotated.item, [engine], annotated.options)[engine.name]
        for annotated in dict.fromkeys(items)
    }
    hashes = [hash_of[annotated][opened.hash_name] for annotated in items]
    tags = [context.tag(*annotated) for annotated in hash_of]
    return _fill(context, opened, hashes, [tag for tag in tags if tag is not None])


def _open(
    context: RequestContext, text: bytes, find_model: FindModel, urls: UrlTreatment
) -> _Opened:
    """Open a request, remove the callers' hashes, and find the slots of ours."""
    body = open_body(text)
    (requested,) = context.engines
    engine, release = requested.engine, requested.version
    formats = engine.annotate
    if formats is None:
        raise Problem("no-field")
    for member in engine.caller_request_members:
        body.pop(member, None)
    _refuse_other_apis(body, formats, release)
    if "messages" in body:
        found = _slots_of_chat(body, formats, release, urls)
    else:
        found = _slots_of_native(body, engine, formats, release, urls, find_model=find_model)
    if len(found.slots) > context.settings.max_items:
        raise Problem("too-many-items")
    media = dict.fromkeys(slot.media for slot in found.slots)
    items = {each: each.item(pixels=context.pixels) for each in media}
    return _Opened(body, found.slots, items, found.hash_name, found.content_prefix)


def _refuse_other_apis(body: Object, formats: AnnotateFormats, release: str) -> None:
    """Refuse a request of OpenAI's other APIs by name, unless it is a native one of the engine."""
    native = formats.native(release) if formats.native is not None else None
    if "messages" in body or (native is not None and is_native(body, native)):
        return
    for name, reason in _OTHER_APIS.items():
        if name in body:
            raise Problem("no-field", reason=reason)


def _neither_chat_nor_native() -> Problem:
    part = InvalidPart("has no messages, and no prompt of a native request", pointer="")
    return Problem("invalid-json", [part])


def _slots_of_chat(
    body: Object, formats: AnnotateFormats, release: str, urls: UrlTreatment
) -> _Slots:
    if formats.chat is None:
        raise Problem("invalid-json")
    chat = formats.chat(release)
    if chat is None:
        raise Problem("no-field")
    # The hash of content that is not fetched is not known.
    skips_remote = urls == "ignore" or (urls == "url" and chat.content_prefix is not None)
    slots = []
    texts: dict[str, str] = {}
    for field, slot in find_in_chat(body, chat):
        if skips_remote and slot.media.is_remote:
            continue
        if field.modality not in texts:
            options = read_options(body, formats.chat_options)
            texts[field.modality] = options_text(formats.unhashed(options, release, field.modality))
        slots.append(slot._replace(options=texts[field.modality]))
    return _Slots(slots, chat.hash_name, chat.content_prefix)


def _slots_of_native(
    body: Object,
    engine: Engine,
    formats: AnnotateFormats,
    release: str,
    urls: UrlTreatment,
    *,
    find_model: FindModel,
) -> _Slots:
    if formats.native is None:
        raise _neither_chat_nor_native()
    native = formats.native(release)
    if native is None:
        raise Problem("no-field")
    if not is_native(body, native):
        raise _neither_chat_nor_native()
    remove_callers_hashes(body, engine)
    options = options_text(read_options(body, formats.native_options))
    slots = find_in_native(body, native, options)
    if urls == "ignore" and any(slot.media.is_remote for slot in slots):
        del body[native.hashes]  # the engine takes a hash for each item or none at all
        slots = []
    model = find_model(open_text(body.get("model")) or "")
    if model is not None and not _takes_hashes(model, engine, release):
        body.pop(native.hashes, None)  # the items keep their keys, as in a plan
    return _Slots(slots, native.hash_name)


def _takes_hashes(model: "Model", engine: Engine, release: str) -> bool:
    try:
        return model.takes_hashes(engine.name, release)
    except InputError:  # without plans of this model for the engine nothing is known against it
        return True


def _fill(context: RequestContext, opened: _Opened, hashes: list[str], tags: list[str]) -> bytes:
    if context.signer is not None:
        opened.body[TAGS_MEMBER] = list(dict.fromkeys(tags))
    for slot, hash_ in zip(opened.slots, hashes, strict=True):
        slot.container[slot.name] = hash_
    return write(opened.body)
