"""The steps of planning: read media, encode, expand placeholders, name items, name blocks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mmhash.digest import Digest, unchecked_digest
from mmhash.engines import vllm
from mmhash.engines.engine import (
    BlockList,
    Engine,
    Prompt,
    Span,
)
from mmhash.errors import InputTypeError, InputValueError, LimitError
from mmhash.framing import frame
from mmhash.prompts import sglang_prompts, vllm_prompts
from mmhash.prompts.expansion import expand, questions
from mmhash.prompts.families.family import MAX_TOKENS, PlacedItem
from mmhash.prompts.file_names import FileNaming
from mmhash.prompts.media import Media, MediaReader
from mmhash.prompts.options import PlanOptions, block_options
from mmhash.prompts.plan import Plan, PlannedItem, join_plans
from mmhash.prompts.processor.messages import Question
from mmhash.requests import (
    Document,
    EngineRequest,
    Form,
    MediaSource,
    RequestError,
    read_for,
)
from mmhash.requests.members import read_object, read_text

if TYPE_CHECKING:
    from mmhash.prompts.model import Model

MAX_REQUEST = 256 << 20
"""The size of the largest request, in bytes."""

MAX_ITEMS = 1024

# The engines' defaults. On a CPU, vLLM's is 128.
BLOCK_SIZES = {"vllm": 16, "sglang": 1}


# How each engine makes the ids of each prompt, before its placeholders are expanded.
_PROMPTS = {"vllm": vllm_prompts.prompts, "sglang": sglang_prompts.prompts}


class _Named(NamedTuple):
    """An item's key as the request carries it, and as the engine uses it in block keys."""

    key: Digest
    block_key: Digest


@dataclass(frozen=True)
class OpenedPlan:
    """A parsed request that still needs the sizes and keys of its media."""

    model: "Model"
    request: EngineRequest

    @cached_property
    def sources(self) -> list[MediaSource]:
        """The media of the request, in order."""
        return [place.source for place in self.request.places]

    @property
    def model_type(self) -> str:
        """The `model_type` of config.json."""
        return str(self.model.files.config.values.get("model_type"))

    def file_naming(self, options: PlanOptions) -> FileNaming | None:
        """Return how the engine names images itself, or None if that is unwanted or unknown."""
        request = self.request
        is_asked = (
            options["hashes"] == "engine" and options["tenant"] is None and options["of"] == "bytes"
        )
        if not (is_asked and request.engine.name == "vllm" and options["model_id"] is not None):
            return None
        if not (self.sources and vllm.hashes_files(request.release)):
            return None
        names = ("mm_processor_kwargs", "media_io_kwargs")
        given = msgspec.json.encode([read_object(request.members, name) for name in names])
        return FileNaming(
            request.release, options["model_id"], options["mm_hasher_algorithm"], given
        )

    def questions(self, media: Mapping[MediaSource, Media]) -> list[Question]:
        """Return the questions for the model's processor that must be answered first."""
        return questions(
            self.model.family(self.request.engine.name, self.request.release),
            [(source.modality, media[source].size) for source in self.sources],
            read_object(self.request.members, "mm_processor_kwargs"),
        )

    def plan(self, options: PlanOptions, media: Mapping[MediaSource, Media] | None = None) -> Plan:
        """Return the plan. Read from the request those media that the caller has not read."""
        if media is None:
            reader = MediaReader(
                self.request,
                options["media"] or {},
                of=options["of"],
                tenant=options["tenant"],
                model_type=self.model_type,
                naming=self.file_naming(options),
            )
            media = {source: reader.read(source) for source in self.sources}
        return _plan(self, [media[source] for source in self.sources], options)


def open_plan(model: "Model", engine: Engine, release: str, document: Document) -> OpenedPlan:
    """Read a request to plan. Raise if the engine may read the request differently."""
    if engine.name not in _PROMPTS:
        known = ", ".join(_PROMPTS)
        raise InputValueError(f"no plans for {engine.name}: mmhash plans for {known}")
    request = read_for(document, engine, release)
    if request.unclear is not None:
        raise request.unclear
    if len(request.places) > MAX_ITEMS:
        raise InputValueError(f"a request must have at most {MAX_ITEMS} items")
    return OpenedPlan(model, request)


def open_document(request: Mapping[str, Any] | bytes | str, form: Form | None) -> Document:
    """Return the document of a request that is a Python object or JSON."""
    if isinstance(request, Mapping):
        try:
            request = json.dumps(request)  # numbers are spelled as by most clients
        except (TypeError, ValueError, RecursionError) as error:
            raise InputValueError(f"a request must be a JSON object: {str(error)[:200]}") from error
    if not isinstance(request, (bytes, str)):
        kind = type(request).__name__
        raise InputTypeError(f"a request must be a dict, or JSON as str or bytes, not {kind}")
    try:
        text = request.encode() if isinstance(request, str) else request
    except UnicodeEncodeError as error:
        raise RequestError("is not UTF-8 text") from error
    if len(text) > MAX_REQUEST:
        raise LimitError(f"a request must have at most {MAX_REQUEST} bytes")
    return Document(text, form)


def _plan(opened: OpenedPlan, media: Sequence[Media], options: PlanOptions) -> Plan:
    model, request = opened.model, opened.request
    prompts = _PROMPTS[request.engine.name](model, request, request.release, options)
    plans = [_plan_prompt(opened, prompt, media, options) for prompt in prompts]
    if len(plans) == 1:
        return plans[0]
    if sum(len(plan.token_ids) for plan in plans) > MAX_TOKENS:
        raise LimitError(f"the prompts have more than {MAX_TOKENS} tokens")
    return join_plans(plans)


def _plan_prompt(
    opened: OpenedPlan, prompt: list[int], media: Sequence[Media], options: PlanOptions
) -> Plan:
    model, request = opened.model, opened.request
    engine, release = request.engine, request.release
    family = model.family(engine.name, release)
    expanded = expand(
        family,
        prompt,
        [(source.modality, one.size) for source, one in zip(opened.sources, media, strict=True)],
        read_object(request.members, "mm_processor_kwargs"),
    )
    by_file = engine.names_by_file(options["server"], release)
    own = [one.engine_name for one in media if one.engine_name is not None]
    names_itself = options["hashes"] == "engine" and bool(media) and len(own) == len(media)
    if by_file:
        named = _name_files(opened, media, options)
    elif names_itself:
        named = [
            _Named(one.key, unchecked_digest("blake3", bytes.fromhex(name)))
            for one, name in zip(media, own, strict=True)
        ]
    else:
        named = _name_items(opened, media, options)
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
            engine_name=one.engine_name,
        )
        for placed, name, one, grid in zip(
            expanded.items, named, media, expanded.grids, strict=True
        )
    ]
    if by_file:
        carried = options["server"] == "rust" or not sglang_prompts.has_media_options(request)
    else:
        carried = names_itself or _fill(opened, items)
    spans = [
        Span(start, end, key=name.block_key)
        for placed, name in zip(expanded.items, named, strict=True)
        for start, end in _named_ranges(engine, placed)
    ]
    spans.sort(key=lambda span: span.start)
    known = expanded.token_ids
    if spans and not carried:
        known = known[: spans[0].start]
    blocks = _name_blocks(opened, known, spans if carried else [], options)
    return Plan(
        expanded.token_ids,
        items,
        spans,
        blocks=blocks.blocks,
        event_ids=blocks.event_ids,
        annotated=request,
        lengths=[len(expanded.token_ids)],
    )


def _named_ranges(engine: Engine, item: PlacedItem) -> list[tuple[int, int]]:
    """Return the ranges of the prompt that the engine names by the item.

    SGLang pads only the tokens that take embeddings. vLLM's range includes structural tokens.
    """
    return item.embeds if engine.name == "sglang" else [(item.start, item.end)]


def _name_blocks(
    opened: OpenedPlan, token_ids: list[int], spans: list[Span], options: PlanOptions
) -> BlockList:
    """Return the keys of the whole blocks of a prompt, or of a prefix."""
    request = opened.request
    block_size = options["block_size"] or BLOCK_SIZES[request.engine.name]
    if len(token_ids) < block_size:
        token_ids, spans = [], []  # no block to name, and the options are checked all the same
    prompt = Prompt(
        token_ids,
        block_size,
        spans=spans,
        cache_salt=read_text(request.members, "cache_salt"),
        extra_key=read_text(request.members, "extra_key"),
        options=block_options(options),
    )
    keys, event_ids = request.engine.prompt_blocks(prompt, request.release)
    whole = len(token_ids) // block_size
    # SGLang also names a page that is not full, but does not cache it.
    return BlockList(keys[:whole], event_ids[:whole])


def _name_files(opened: OpenedPlan, media: Sequence[Media], options: PlanOptions) -> list[_Named]:
    """Return each image's key, and the name that the server gives to its file.

    The Rust server names a file by its digest, the plugin by its key.
    """
    server = options["server"]
    if media and server == "rust" and opened.request.document.form != "generate":
        raise InputValueError("SGLang's Rust server takes images in /generate only")
    named = []
    for one in media:
        file = one.file_digest
        if file is None or file.algorithm != "blake3":
            raise InputValueError(
                "SGLang's server hashes the file: pass its BLAKE3 digest as file_digest"
            )
        if server == "mmhash":
            file = frame("bytes", "", (), file, tenant=options["tenant"])
        named.append(_Named(one.key, file))
    return named


def _name_items(opened: OpenedPlan, media: Sequence[Media], options: PlanOptions) -> list[_Named]:
    """Return each item's key as the request carries it, and as the engine's block keys use it."""
    request = opened.request
    keys = [
        request.engine.name_item(
            one.key,
            request.release,
            options=request.options(source.modality),
            orientation=one.exif_orientation,
        )
        for source, one in zip(opened.sources, media, strict=True)
    ]
    return list(map(_Named, keys, _block_keys(opened, keys, options)))


def _block_keys(opened: OpenedPlan, keys: list[Digest], options: PlanOptions) -> list[Digest]:
    """Return the items' keys as the engine's block keys use them."""
    if not keys:
        return keys
    request, engine = opened.request, opened.request.engine
    processing = read_object(request.members, "mm_processor_kwargs")
    media_io = read_object(request.members, "media_io_kwargs")
    if engine.name != "vllm" or not (processing or media_io):
        return keys
    # vLLM hashes a uuid together with the options and its name of the model.
    if options["model_id"] is None:
        raise InputValueError(
            "the request has processor options, with which vLLM hashes its name of the model:"
            " give it as model_id"
        )
    family = opened.model.family(engine.name, request.release)
    found = list(keys)
    for modality in {source.modality for source in opened.sources}:
        places = [n for n, source in enumerate(opened.sources) if source.modality == modality]
        identifiers = vllm.identifiers(
            modality,
            [b""] * len(places),
            model_id=options["model_id"],
            uuids=[vllm.uuid(keys[place]) for place in places],
            processor_kwargs=processing,
            media_io_kwargs=media_io,
            per_video_options=family.per_video_options,
            version=request.release,
            algorithm=options["mm_hasher_algorithm"],
        )
        for place, identifier in zip(places, identifiers, strict=True):
            found[place] = Digest("blake3", bytes.fromhex(identifier))
    return found


def _fill(opened: OpenedPlan, items: Sequence[PlannedItem]) -> bool:
    """Put the hashes into the request. Return True if the engine names blocks by them."""
    request = opened.request
    if request.fields is None:
        return False
    if request.document.form == "generate" and not opened.model.takes_hashes(
        request.engine.name, request.release
    ):
        request.leave_hashes_out()
        return False
    for place, item in zip(request.places, items, strict=True):
        request.fill(place, request.hash_of(place.source, item.fields))
    return request.content_prefix is None and request.has_all_places
