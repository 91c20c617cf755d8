"""From a request to its plan: encode the prompt, expand placeholders, name items and blocks."""

from collections.abc import Mapping, Sequence
from io import BufferedReader, BytesIO
from typing import Any

from mmhash.engines.engine import BlockList, Prompt, Span
from mmhash.errors import InputValueError, LimitError
from mmhash.framing import frame
from mmhash.hashing import digest, key
from mmhash.io.images import read_image_file
from mmhash.prompts import sglang_prompts, vllm_prompts
from mmhash.prompts.expansion import count_tokens, expand, questions
from mmhash.prompts.families.family import Family
from mmhash.prompts.headers import ImageHeader, engine_size, read_size
from mmhash.prompts.headers.wav import read_samples
from mmhash.prompts.items import Media, MediaSize, PlacedItem, UnknownMediaError, check_media
from mmhash.prompts.limits import MAX_TOKENS
from mmhash.prompts.names import (
    ItemName,
    file_naming,
    has_media_options,
    name_by_engine,
    name_by_file,
    name_by_key,
    wants_engine_names,
)
from mmhash.prompts.options import PlanOptions
from mmhash.prompts.plan import Plan, PlannedItem, join_plans
from mmhash.prompts.processor.messages import Question
from mmhash.prompts.section import Section
from mmhash.requests import EngineRequest, MediaSource, Modality
from mmhash.requests.members import read_object, read_text

# The engines' defaults. On a CPU, vLLM's default is 128.
BLOCK_SIZES = {"vllm": 16, "sglang": 1}

# vLLM's defaults for a video that is sent as its frames.
_MOST_FRAMES = 32
_FRAME_OPTIONS = {"fps", "num_frames"}

# How each engine makes the ids of each prompt, before placeholders are expanded.
_PROMPT_IDS = {"vllm": vllm_prompts.prompt_ids, "sglang": sglang_prompts.prompt_ids}


class Planner:
    """Plans one request. The sizes and keys of the media may become known only later."""

    def __init__(self, family: Family, request: EngineRequest, options: PlanOptions) -> None:
        self.family = family
        self.request = request
        self.options = options
        self.engine, self.release = request.engine, request.release
        self.block_size = options["block_size"] or BLOCK_SIZES[request.engine.name]
        self.sources = [place.source for place in request.places]
        """The media of the request, in order."""
        self.naming = file_naming(request, options)
        """How vLLM names images itself, or None if its names are unwanted or not computable."""

    @property
    def processor_options(self) -> dict[str, Any]:
        """The request's `mm_processor_kwargs`."""
        return read_object(self.request.members, "mm_processor_kwargs")

    def size_of(self, header: ImageHeader) -> MediaSize:
        """Return an image's size as the engine's processor receives it."""
        model_type = self.family.files.model_type
        width, height = engine_size(header, self.engine.name, self.release, model_type=model_type)
        return MediaSize(width=width, height=height)

    def size_of_frames(self, header: ImageHeader, sent: int) -> MediaSize:
        """Return the size of a video that is sent as frames, from the first frame's header.

        vLLM takes no frames of several sizes.
        """
        given = read_object(self.request.members, "media_io_kwargs")
        options = Section("media_io_kwargs", given).section("video")
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
        return questions(self.family, self._sizes(media), self.processor_options)

    def count_media_tokens(self, media: Mapping[MediaSource, Media]) -> int:
        """Return how many tokens of the prompt are the media's."""
        return count_tokens(self.family, self._sizes(media), self.processor_options)

    def _sizes(self, media: Mapping[MediaSource, Media]) -> list[tuple[Modality, MediaSize]]:
        return [(source.modality, media[source].size) for source in self.sources]

    def plan(self, media: Mapping[MediaSource, Media] | None = None) -> Plan:
        """Return the plan. If the caller passes no media, read the media from the request."""
        if media is None:
            media = {source: self._read(source) for source in dict.fromkeys(self.sources)}
        items = [media[source] for source in self.sources]
        prompts = _PROMPT_IDS[self.engine.name](self.family, self.request, self.options)
        plans = [self._plan_prompt(prompt, items) for prompt in prompts]
        if len(plans) == 1:
            return plans[0]
        if sum(len(plan.token_ids) for plan in plans) > MAX_TOKENS:
            raise LimitError(f"the prompts have more than {MAX_TOKENS} tokens")
        return join_plans(plans)

    def _read(self, source: MediaSource) -> Media:
        """Return an item's size and key. Raise UnknownMediaError if they cannot be known."""
        known = self.options["media"]
        if known:  # otherwise skip restoring and hashing a long text
            found = known.get(self.request.document.whole(source.text))
            if found is not None:
                check_media(found, source.modality)
                return found
        tenant = self.options["tenant"]
        if source.is_frames:
            frames = source.frames()
            size = self.size_of_frames(read_size(frames[0]), len(frames))
            return Media(size, key(frames, tenant=tenant))
        if source.modality == "video" or source.is_remote:
            kind = f"{source.modality} items behind URLs" if source.is_remote else "videos"
            raise UnknownMediaError(f"pass the sizes and keys of {kind} to plan() as media")
        data = source.content()
        if source.modality == "image" and self.options["of"] == "pixels":
            size = self.size_of(read_size(data))
            image = read_image_file(BufferedReader(BytesIO(data)))
            of_pixels = image.key(digest(image.pixels), tenant=tenant)
            return Media(size, of_pixels, image.exif_orientation)
        file = digest(data)
        of_file = frame("bytes", "", (), file, tenant=tenant)
        if source.modality == "audio":
            return Media(MediaSize(samples=read_samples(data)), of_file, file_digest=file)
        header = read_size(data)
        name = None if self.naming is None else self.naming.name(data, header)
        return Media(self.size_of(header), of_file, file_digest=file, engine_name=name)

    def _plan_prompt(self, prompt: list[int], media: Sequence[Media]) -> Plan:
        sizes = [
            (source.modality, one.size) for source, one in zip(self.sources, media, strict=True)
        ]
        token_ids, placed = expand(self.family, prompt, sizes, self.processor_options)
        names, is_carried = self._name_items(media)
        items = [
            PlannedItem(
                item.modality,
                name.key,
                fields=name.fields,
                size=one.size,
                grid=item.grid,
                start=item.start,
                end=item.end,
                embeds=item.embeds,
                engine_name=one.engine_name,
            )
            for item, name, one in zip(placed, names, media, strict=True)
        ]
        spans = [
            Span(start, end, key=name.block_key)
            for item, name in zip(placed, names, strict=True)
            for start, end in self._named_ranges(item)
        ]
        spans.sort(key=lambda span: span.start)
        if is_carried or not spans:
            blocks = self._name_blocks(token_ids, spans)
        else:
            blocks = self._name_blocks(token_ids[: spans[0].start], [])
        return Plan(
            token_ids,
            items,
            spans,
            block_keys=blocks.keys,
            event_ids=blocks.event_ids,
            annotated=self.request,
            lengths=[len(token_ids)],
        )

    def _name_items(self, media: Sequence[Media]) -> tuple[list[ItemName], bool]:
        """Return the names of the items, and True if the engine names blocks by them."""
        request, options = self.request, self.options
        if self.engine.names_by_file(options["server"], self.release):
            is_whole = options["server"] == "rust" or not has_media_options(request)
            return name_by_file(request, options, media), is_whole
        if not media:
            return [], True
        if wants_engine_names(request, options) and (own := name_by_engine(request, media)):
            return own, True
        names = name_by_key(self.family, request, options, media)
        return names, self._fill(names)

    def _fill(self, names: Sequence[ItemName]) -> bool:
        """Put the hashes into the request. Return True if the engine names blocks by them."""
        request = self.request
        if request.fields is None:
            return False
        if request.document.form == "generate" and not self.family.takes_hashes():
            request.leave_hashes_out()
            return False
        for place, name in zip(request.places, names, strict=True):
            request.fill(place, request.hash_of(place.source, name.fields))
        return request.content_prefix is None and request.has_all_places

    def _named_ranges(self, item: PlacedItem) -> list[tuple[int, int]]:
        """Return the ranges of the prompt that the engine names by the item.

        SGLang pads only the tokens that take embeddings. vLLM's range includes structural tokens.
        """
        return item.embeds if self.engine.name == "sglang" else [(item.start, item.end)]

    def _name_blocks(self, token_ids: list[int], spans: list[Span]) -> BlockList:
        """Return the keys of the whole blocks of a prompt, or of a prefix."""
        if len(token_ids) < self.block_size:
            token_ids, spans = [], []  # no block to name, but the options are checked
        prompt = Prompt(
            token_ids,
            self.block_size,
            spans=spans,
            cache_salt=read_text(self.request.members, "cache_salt"),
            extra_key=read_text(self.request.members, "extra_key"),
            options=self.options,
            tenant=self.options["tenant"],
        )
        keys, event_ids = self.engine.prompt_blocks(prompt, self.release)
        whole = len(token_ids) // self.block_size
        # SGLang also names a page that is not full, but does not cache it.
        return BlockList(keys[:whole], event_ids[:whole])
