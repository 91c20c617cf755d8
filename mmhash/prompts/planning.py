"""The steps of a plan: media, ids, placeholders, keys, blocks."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from mmhash.digest import Digest
from mmhash.engines import vllm
from mmhash.engines.engine import (
    AnnotateFormats,
    BlockList,
    ChatFormat,
    Engine,
    Prompt,
    PromptBlocks,
    Span,
)
from mmhash.engines.options import options_text, parse_options
from mmhash.errors import InputTypeError, InputValueError, LimitError
from mmhash.prompts import sglang_prompts, vllm_prompts
from mmhash.prompts.expansion import expand
from mmhash.prompts.families.family import PlacedItem
from mmhash.prompts.media import Media, MediaReader, MediaSource, decode_inline
from mmhash.prompts.members import read_object, read_text
from mmhash.prompts.options import PlanOptions
from mmhash.prompts.plan import Plan, PlannedItem
from mmhash.prompts.slots import OpenedRequest, Slot, open_request

if TYPE_CHECKING:
    from mmhash.prompts.model import Model

MAX_REQUEST = 256 << 20
"""The bytes of the largest request."""

# The defaults of the engines; vLLM's on a CPU is 128.
BLOCK_SIZES = {"vllm": 16, "sglang": 1}


class _Rules(Protocol):
    """An engine's own rules: its ids before expansion, and the ranges that it names by an item."""

    def token_ids(
        self, model: "Model", request: OpenedRequest, release: str, options: PlanOptions
    ) -> list[int]:
        """Return the ids of a request before its placeholders are expanded."""

    def ranges(self, item: PlacedItem) -> list[tuple[int, int]]:
        """Return the ranges of the prompt that are named by the item."""


_RULES: dict[str, _Rules] = {"vllm": vllm_prompts, "sglang": sglang_prompts}


class _Named(NamedTuple):
    """An item's key with its options, and the key by which the engine names blocks."""

    key: Digest
    block_key: Digest


class OpenedPlan(NamedTuple):
    """A request that is read, and waits for the sizes and keys of its media."""

    model: "Model"
    engine: Engine
    release: str
    request: OpenedRequest
    spelled: Mapping[str, Any]
    """The options of the request, with numbers as they are spelled."""

    @property
    def sources(self) -> list[MediaSource]:
        """The media of the request, in its order."""
        return [slot.source for slot in self.request.slots]

    @property
    def model_type(self) -> str:
        """The `model_type` of config.json."""
        return str(self.model.files.config.values.get("model_type"))

    def plan(self, options: PlanOptions) -> Plan:
        """Return the plan."""
        reader = MediaReader(
            options.media or {},
            of=options.of,
            tenant=options.tenant,
            engine=self.engine.name,
            release=self.release,
            model_type=self.model_type,
        )
        return _plan(self, [reader.read(source) for source in self.sources], options)


def open_plan(
    model: "Model", engine: Engine, release: str, request: Mapping[str, Any] | bytes | str
) -> OpenedPlan:
    """Read a request to plan."""
    if engine.name not in _RULES:
        raise InputValueError(f"no plans for {engine.name}: they are for {', '.join(_RULES)}")
    body, spelled = _parse(request, engine)
    return OpenedPlan(model, engine, release, open_request(body, engine, release), spelled)


def _plan(opened: OpenedPlan, media: Sequence[Media], options: PlanOptions) -> Plan:
    model, engine, release, request = opened.model, opened.engine, opened.release, opened.request
    rules = _RULES[engine.name]
    family = model.family(engine.name, release)
    expanded = expand(
        family,
        rules.token_ids(model, request, release, options),
        [(source.modality, one.size) for source, one in zip(opened.sources, media, strict=True)],
        read_object(request.body, "mm_processor_kwargs"),
    )
    by_file = engine.names_by_file(options.server, release)
    named = _name_files(opened, media) if by_file else _name_items(opened, media, options)
    items = [
        PlannedItem(
            placed.modality,
            name.key,
            fields=engine.request_fields(name.block_key if by_file else name.key, release),
            size=one.size,
            grid=grid,
            start=placed.start,
            end=placed.end,
            embeds=placed.embeds,
        )
        for placed, name, one, grid in zip(
            expanded.items, named, media, expanded.grids, strict=True
        )
    ]
    carried = by_file or _fill(opened, items, takes_hashes=model.takes_hashes(engine.name, release))
    spans = [
        Span(start, end, key=name.block_key)
        for placed, name in zip(expanded.items, named, strict=True)
        for start, end in rules.ranges(placed)
    ]
    spans.sort(key=lambda span: span.start)
    known = expanded.token_ids
    if spans and not carried:
        known = known[: spans[0].start]
    blocks, groups = _name_blocks(opened, known, spans if carried else [], options)
    return Plan(
        expanded.token_ids,
        items,
        spans,
        blocks=blocks.blocks,
        event_ids=blocks.event_ids,
        request=request.body,
        groups=None if groups is None else {size: one.event_ids for size, one in groups.items()},
    )


def _name_blocks(
    opened: OpenedPlan, token_ids: list[int], spans: list[Span], options: PlanOptions
) -> PromptBlocks:
    """Return the keys of the whole blocks of a prompt, or of its beginning."""
    body = opened.request.body
    block_size = options.block_size or BLOCK_SIZES[opened.engine.name]
    prompt = Prompt(
        token_ids,
        block_size,
        spans=spans,
        cache_salt=read_text(body, "cache_salt"),
        extra_key=read_text(body, "extra_key"),
        block_algorithm=options.block_algorithm,
        seed=options.seed,
        lora=options.lora,
        lora_path=options.lora_path,
        lookahead=options.lookahead,
        groups=options.groups,
    )
    (keys, event_ids), groups = opened.engine.prompt_blocks(prompt, opened.release)
    whole = len(token_ids) // block_size
    # SGLang names a page that is not full too, and does not cache it.
    return PromptBlocks(BlockList(keys[:whole], event_ids[:whole]), groups)


def _parse(
    request: Mapping[str, Any] | bytes | str, engine: Engine
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the request, and its options with numbers as they are spelled."""
    if isinstance(request, Mapping):
        names = _option_names(engine.annotate)
        spelled = {name: request[name] for name in names if name in request}
        return request, parse_options(_dump(spelled)) if spelled else {}
    if not isinstance(request, (bytes, str)):
        kind = type(request).__name__
        raise InputTypeError(f"a request is a dict, or its JSON as str or bytes, not {kind}")
    if len(request) > MAX_REQUEST:
        raise LimitError(f"a request has at most {MAX_REQUEST} bytes")
    try:
        body = msgspec.json.decode(request)  # 4 times faster than json
        if not isinstance(body, dict):
            raise InputValueError("a request is a JSON object")
        if body.keys().isdisjoint(_option_names(engine.annotate)):
            return body, {}
        return body, parse_options(request)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputValueError(f"a request is a JSON object: {str(error)[:200]}") from error


def _dump(options: Mapping[str, Any]) -> str:
    """Return the options of a request as JSON."""
    try:
        return json.dumps(options)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputValueError(f"a request is a JSON object: {str(error)[:200]}") from error


def _option_names(formats: AnnotateFormats | None) -> tuple[str, ...]:
    return () if formats is None else (*formats.chat_options, *formats.native_options)


def _name_files(opened: OpenedPlan, media: Sequence[Media]) -> list[_Named]:
    """Return each image's key, and the digest of its file, by which the engine's blocks name it.

    The engine computes it from the request, which carries no hash.
    """
    body, formats = opened.request.body, opened.engine.annotate
    native = formats.native(opened.release) if formats and formats.native else None
    if native is not None:
        body.pop(native.hashes, None)
    if media and "messages" in body:
        raise InputValueError("SGLang's server in Rust takes images in /generate only")
    named = []
    for one in media:
        if one.file_digest is None or one.file_digest.algorithm != "blake3":
            raise InputValueError(
                "SGLang's server in Rust hashes the file: give its BLAKE3 as file_digest"
            )
        named.append(_Named(one.key, one.file_digest))
    return named


def _name_items(opened: OpenedPlan, media: Sequence[Media], options: PlanOptions) -> list[_Named]:
    """Return each item's key as the request carries it, and as the engine's blocks have it."""
    engine, release, spelled = opened.engine, opened.release, opened.spelled
    formats = engine.annotate
    if formats is None or not media:
        return []
    is_chat = "messages" in opened.request.body
    names = formats.chat_options if is_chat else formats.native_options
    given = {name: spelled[name] for name in names if name in spelled}
    texts = {
        modality: options_text(formats.unhashed(given, release, modality) if is_chat else given)
        for modality in {source.modality for source in opened.sources}
    }
    keys = [
        engine.name_item(
            one.key, release, options=texts[source.modality], orientation=one.exif_orientation
        )
        for source, one in zip(opened.sources, media, strict=True)
    ]
    return list(map(_Named, keys, _block_keys(opened, keys, options)))


def _block_keys(opened: OpenedPlan, keys: list[Digest], options: PlanOptions) -> list[Digest]:
    """Return the items' keys as the engine's blocks have them."""
    body = opened.request.body
    processing = read_object(body, "mm_processor_kwargs")
    media_io = read_object(body, "media_io_kwargs")
    if opened.engine.name != "vllm" or not (processing or media_io):
        return keys
    # vLLM hashes a uuid with the options, and with its name of the model.
    if options.model_id is None:
        raise InputValueError(
            "the request has processor options, with which vLLM hashes its name of the model:"
            " give it as model_id"
        )
    family = opened.model.family(opened.engine.name, opened.release)
    found = list(keys)
    for modality in {source.modality for source in opened.sources}:
        places = [n for n, source in enumerate(opened.sources) if source.modality == modality]
        identifiers = vllm.identifiers(
            modality,
            [b""] * len(places),
            model_id=options.model_id,
            uuids=[vllm.uuid(keys[place]) for place in places],
            processor_kwargs=processing,
            media_io_kwargs=media_io,
            per_video_options=family.per_video_options,
            version=opened.release,
            algorithm=options.mm_hasher_algorithm,
        )
        for place, identifier in zip(places, identifiers, strict=True):
            found[place] = Digest("blake3", bytes.fromhex(identifier))
    return found


def _fill(opened: OpenedPlan, items: Sequence[PlannedItem], *, takes_hashes: bool) -> bool:
    """Put the hashes into the request; return True if the engine names blocks by them."""
    request, release, formats = opened.request, opened.release, opened.engine.annotate
    if formats is None:
        return False
    if "messages" in request.body:
        chat = formats.chat(release) if formats.chat else None
        return chat is not None and _fill_chat(request.slots, items, chat)
    native = formats.native(release) if formats.native else None
    if native is None:
        return False
    if not takes_hashes:
        request.body.pop(native.hashes, None)
        return False
    for slot, item in zip(request.slots, items, strict=True):
        slot.fill(item.fields[native.hash_name])
    return True


def _fill_chat(slots: Sequence[Slot], items: Sequence[PlannedItem], chat: ChatFormat) -> bool:
    """Put the hashes into a chat; True if each item has one, and blocks are named by them."""
    if chat.content_prefix is None:
        for slot, item in zip(slots, items, strict=True):
            slot.fill(item.fields[chat.hash_name])
        return all(slot.container is not None for slot in slots)
    for slot in slots:
        if slot.container is not None and slot.source.text[:5].lower() == "data:":
            content = hashlib.sha256(decode_inline(slot.source.text)).hexdigest()
            slot.fill(f"{chat.content_prefix}{content}")
    return False
