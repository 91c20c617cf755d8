"""From a request to its plan: encode the prompt, expand placeholders, name items and blocks."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mmhash.digest import Digest, unchecked_digest
from mmhash.engines import vllm
from mmhash.engines.engine import BlockList, Engine, Prompt, Span
from mmhash.errors import InputValueError, LimitError
from mmhash.framing import frame
from mmhash.prompts import sglang_prompts, vllm_prompts
from mmhash.prompts.expansion import expand, questions
from mmhash.prompts.families.family import MAX_TOKENS, MediaSize, PlacedItem
from mmhash.prompts.files import Section
from mmhash.prompts.headers import ImageHeader, engine_size
from mmhash.prompts.media import FileNaming, Media, read_media
from mmhash.prompts.options import PlanOptions, block_options
from mmhash.prompts.plan import Plan, PlannedItem, join_plans
from mmhash.prompts.processor.messages import Question
from mmhash.prompts.templates import ChatTemplate
from mmhash.requests import Document, EngineRequest, MediaSource, read_for
from mmhash.requests.members import read_object, read_text

if TYPE_CHECKING:
    from mmhash.prompts.model import Model

MAX_ITEMS = 1024

# The engines' defaults. On a CPU, vLLM's default is 128.
BLOCK_SIZES = {"vllm": 16, "sglang": 1}

# vLLM's defaults for a video that is sent as its frames.
_MOST_FRAMES = 32
_FRAME_OPTIONS = {"fps", "num_frames"}

# How each engine makes the ids of each prompt, before placeholders are expanded.
_PROMPTS = {"vllm": vllm_prompts.prompts, "sglang": sglang_prompts.prompts}


class _Name(NamedTuple):
    """An item's key as the request carries it, and as the engine uses it in block keys."""

    key: Digest
    block_key: Digest


def open_planner(
    model: "Model", engine: Engine, release: str, document: Document, options: PlanOptions
) -> "Planner":
    """Open a request for planning.

    Raise an error if the engine may read the request differently.
    """
    if engine.name not in _PROMPTS:
        known = ", ".join(_PROMPTS)
        raise InputValueError(f"mmhash has no plans for {engine.name}: it plans for {known}")
    request = read_for(document, engine, release)
    if request.unclear is not None:
        raise request.unclear
    if len(request.places) > MAX_ITEMS:
        raise InputValueError(f"a request must have at most {MAX_ITEMS} items")
    return Planner(model, request, options)


class Planner:
    """Plans one request. The sizes and keys of the media may become known only later."""

    def __init__(self, model: "Model", request: EngineRequest, options: PlanOptions) -> None:
        self.model = model
        self.request = request
        self.options = options
        self.engine, self.release = request.engine, request.release
        self.family = model.family(request.engine.name, request.release)
        self.sources = [place.source for place in request.places]
        """The media of the request, in order."""

    @cached_property
    def processor_options(self) -> dict[str, Any]:
        """The request's `mm_processor_kwargs`."""
        return read_object(self.request.members, "mm_processor_kwargs")

    @cached_property
    def media_options(self) -> dict[str, Any]:
        """The request's `media_io_kwargs`."""
        return read_object(self.request.members, "media_io_kwargs")

    @cached_property
    def naming(self) -> FileNaming | None:
        """How vLLM names images itself, or None if its names are not wanted or not computable."""
        options = self.options
        if options["hashes"] != "engine" or options["tenant"] or options["of"] == "pixels":
            return None
        if self.engine.name != "vllm" or options["model_id"] is None:
            return None
        if not (self.sources and vllm.hashes_files(self.release)):
            return None
        given = msgspec.json.encode([self.processor_options, self.media_options])
        return FileNaming(self.release, options["model_id"], options["mm_hasher_algorithm"], given)

    def template(self, *, with_tools: bool) -> ChatTemplate:
        """Return the chat template that the engine uses."""
        return self.model.template(self.options["chat_template"], with_tools=with_tools)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the token ids of a text."""
        return self.model.encode(
            text, add_special_tokens=add_special_tokens, tenant=self.options["tenant"]
        )

    def size_of(self, header: ImageHeader) -> MediaSize:
        """Return an image's size as the engine's processor receives it."""
        width, height = engine_size(
            header, self.engine.name, self.release, model_type=self.model.model_type
        )
        return MediaSize(width=width, height=height)

    def size_of_frames(self, header: ImageHeader, sent: int) -> MediaSize:
        """Return the size of a video that is sent as frames, from the first frame's header.

        vLLM takes no frames of several sizes.
        """
        options = Section("media_io_kwargs", self.media_options).section("video")
        unknown = sorted(options.values.keys() - _FRAME_OPTIONS)
        if unknown:
            raise InputValueError(
                f"{options.where}: mmhash does not know the option {unknown[0][:60]}"
            )
        most = options.get("num_frames", int, _MOST_FRAMES)
        fps = options.get("fps", float, 1.0)
        if fps <= 0 or not (most > 0 or most == -1):
            raise InputValueError(f"{options.where}: fps and num_frames must be above 0")
        frames = sent if most == -1 else min(sent, most)
        times = tuple(number / fps for number in range(frames))
        return self.size_of(header)._replace(frames=frames, fps=fps, times=times)

    def questions(self, media: Mapping[MediaSource, Media]) -> list[Question]:
        """Return the questions for the model's processor that must be answered first."""
        sizes = [(source.modality, media[source].size) for source in self.sources]
        return questions(self.family, sizes, self.processor_options)

    def plan(self, media: Mapping[MediaSource, Media] | None = None) -> Plan:
        """Return the plan. If the caller passes no media, read the media from the request."""
        if media is None:
            media = {source: read_media(self, source) for source in dict.fromkeys(self.sources)}
        items = [media[source] for source in self.sources]
        prompts = _PROMPTS[self.engine.name](self)
        plans = [self._plan_prompt(prompt, items) for prompt in prompts]
        if len(plans) == 1:
            return plans[0]
        if sum(len(plan.token_ids) for plan in plans) > MAX_TOKENS:
            raise LimitError(f"the prompts have more than {MAX_TOKENS} tokens")
        return join_plans(plans)

    def _plan_prompt(self, prompt: list[int], media: Sequence[Media]) -> Plan:
        sizes = [
            (source.modality, one.size) for source, one in zip(self.sources, media, strict=True)
        ]
        expanded = expand(self.family, prompt, sizes, self.processor_options)
        names_files = self.engine.names_by_file(self.options["server"], self.release)
        names_itself = (
            not names_files
            and self.options["hashes"] == "engine"
            and bool(media)
            and all(one.engine_name is not None for one in media)
        )
        if names_files:
            names = self._name_files(media)
        elif names_itself:
            names = [
                _Name(one.key, unchecked_digest("blake3", bytes.fromhex(one.engine_name or "")))
                for one in media
            ]
        else:
            names = self._name_items(media)
        items = [
            PlannedItem(
                placed.modality,
                name.key,
                fields=self.engine.request_fields(
                    name.block_key if names_files else name.key, self.release
                ),
                size=one.size,
                grid=grid,
                start=placed.start,
                end=placed.end,
                embeds=placed.embeds,
                engine_name=one.engine_name,
            )
            for placed, name, one, grid in zip(
                expanded.items, names, media, expanded.grids, strict=True
            )
        ]
        is_carried = names_itself or (
            self._names_whole_files() if names_files else self._fill(items)
        )
        spans = [
            Span(start, end, key=name.block_key)
            for placed, name in zip(expanded.items, names, strict=True)
            for start, end in self._named_ranges(placed)
        ]
        spans.sort(key=lambda span: span.start)
        if is_carried or not spans:
            blocks = self._name_blocks(expanded.token_ids, spans)
        else:
            blocks = self._name_blocks(expanded.token_ids[: spans[0].start], [])
        return Plan(
            expanded.token_ids,
            items,
            spans,
            blocks=blocks.blocks,
            event_ids=blocks.event_ids,
            annotated=self.request,
            lengths=[len(expanded.token_ids)],
        )

    def _named_ranges(self, item: PlacedItem) -> list[tuple[int, int]]:
        """Return the ranges of the prompt that the engine names by the item.

        SGLang pads only the tokens that take embeddings. vLLM's range includes structural tokens.
        """
        return item.embeds if self.engine.name == "sglang" else [(item.start, item.end)]

    def _name_blocks(self, token_ids: list[int], spans: list[Span]) -> BlockList:
        """Return the keys of the whole blocks of a prompt, or of a prefix."""
        block_size = self.options["block_size"] or BLOCK_SIZES[self.engine.name]
        if len(token_ids) < block_size:
            token_ids, spans = [], []  # no block to name, but the options are checked
        prompt = Prompt(
            token_ids,
            block_size,
            spans=spans,
            cache_salt=read_text(self.request.members, "cache_salt"),
            extra_key=read_text(self.request.members, "extra_key"),
            options=block_options(self.options),
            tenant=self.options["tenant"],
        )
        keys, event_ids = self.engine.prompt_blocks(prompt, self.release)
        whole = len(token_ids) // block_size
        # SGLang also names a page that is not full, but does not cache it.
        return BlockList(keys[:whole], event_ids[:whole])

    def _name_files(self, media: Sequence[Media]) -> list[_Name]:
        """Return each image's key, and the name that SGLang gives to its file.

        The Rust server names a file by its digest, the plugin by its key.
        """
        server = self.options["server"]
        if media and server == "rust" and self.request.document.form != "generate":
            raise InputValueError("SGLang's Rust server takes images in /generate only")
        names = []
        for one in media:
            file = one.file_digest
            if file is None or file.algorithm != "blake3":
                raise InputValueError(
                    "SGLang's server hashes the file: pass its BLAKE3 digest as file_digest"
                )
            if server == "mmhash":
                file = frame("bytes", "", (), file, tenant=self.options["tenant"])
            names.append(_Name(one.key, file))
        return names

    def _names_whole_files(self) -> bool:
        """Return True if SGLang names each image by its file alone."""
        is_rust = self.options["server"] == "rust"
        return is_rust or not sglang_prompts.has_media_options(self.request)

    def _name_items(self, media: Sequence[Media]) -> list[_Name]:
        """Return the key of each item, as the request carries it and as block keys use it."""
        keys = [
            self.engine.name_item(
                one.key,
                self.release,
                options=self.request.options(source.modality),
                orientation=one.exif_orientation,
            )
            for source, one in zip(self.sources, media, strict=True)
        ]
        return list(map(_Name, keys, self._block_keys(keys)))

    def _block_keys(self, keys: list[Digest]) -> list[Digest]:
        """Return the items' keys as the engine's block keys use them."""
        if not keys or self.engine.name != "vllm":
            return keys
        if not (self.processor_options or self.media_options):
            return keys
        # vLLM hashes a uuid together with the options and its name of the model.
        if self.options["model_id"] is None:
            raise InputValueError(
                "the request has processor options, which vLLM hashes together with its name of"
                " the model: pass that name as model_id"
            )
        found = list(keys)
        for modality in {source.modality for source in self.sources}:
            places = [n for n, source in enumerate(self.sources) if source.modality == modality]
            identifiers = vllm.identifiers(
                modality,
                [b""] * len(places),
                model_id=self.options["model_id"],
                uuids=[vllm.uuid(keys[place]) for place in places],
                processor_kwargs=self.processor_options,
                media_io_kwargs=self.media_options,
                per_video_options=self.family.per_video_options,
                version=self.release,
                algorithm=self.options["mm_hasher_algorithm"],
            )
            for place, identifier in zip(places, identifiers, strict=True):
                found[place] = Digest("blake3", bytes.fromhex(identifier))
        return found

    def _fill(self, items: Sequence[PlannedItem]) -> bool:
        """Put the hashes into the request. Return True if the engine names blocks by them."""
        request = self.request
        if request.fields is None:
            return False
        if request.document.form == "generate" and not self.family.takes_hashes():
            request.leave_hashes_out()
            return False
        for place, item in zip(request.places, items, strict=True):
            request.fill(place, request.hash_of(place.source, item.fields))
        return request.content_prefix is None and request.has_all_places
