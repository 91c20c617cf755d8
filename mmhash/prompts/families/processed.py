"""Models without a built-in family: their own processor counts tokens, in a helper process."""

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from mmhash.engines.vllm.media import SCOPES
from mmhash.errors import InputValueError
from mmhash.prompts.families import checked
from mmhash.prompts.families.family import Family, Placeholder
from mmhash.prompts.families.newlines import Newlines
from mmhash.prompts.families.processor_options import read_options
from mmhash.prompts.files import ModelFiles
from mmhash.prompts.items import Expansion, MediaSize, PlacedItem
from mmhash.prompts.processor.messages import Question
from mmhash.prompts.section import UnknownModelError
from mmhash.requests import Modality


class Processed(Family):
    """A model whose processor we ask once for each size."""

    def __init__(self, files: ModelFiles, engine: str = "", release: str = "") -> None:
        super().__init__(files, engine, release)
        kind = checked.kind_of(files.config)
        if find_spec("transformers") is None:
            raise UnknownModelError(
                f"model_type {kind!r} of config.json has no built-in family: install"
                " mmhash-keys[processors] to ask the model's own processor"
            )
        self._processor = files.model_processor
        texts = None if files.unchecked else checked.texts(kind, engine, release)
        targets = self._processor.facts().targets
        self.placeholders = {
            modality: Placeholder(target, "" if texts is None else texts[modality])
            for modality, target in targets.items()
            if texts is None or modality in texts
        }
        self._kind = "" if files.unchecked else kind
        self._step, self._longest = 1, sys.maxsize
        if self._kind in checked.PADDED_CLIPS:
            self._step = files.audio_processor.get("hop_length", int, 160)
        if self._kind in checked.CUT_CLIPS:
            self._longest = files.audio_processor.get("n_samples", int, 480_000)
        self._newlines = Newlines(files.encoder, engine) if self._kind in checked.MERGED else None
        self.numbers_items = kind in checked.NUMBERED

    def question(
        self, modality: Modality, size: MediaSize, options: Mapping[str, Any]
    ) -> Question | None:
        """Return the question to ask the processor first, or None if the answer is known."""
        question = self._question(modality, size, options)
        return None if self._processor.known(question) else question

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return the tokens of an item. Ask the processor if the size is new."""
        question = self._question(modality, size, options)
        known = self._processor.known(question)
        if known is not None:
            return known
        return self._processor.learn(question, self._processor.ask(question))

    def merge(
        self, token_ids: list[int], items: list[PlacedItem]
    ) -> tuple[list[int], list[PlacedItem]]:
        """Return the expanded prompt, with its newlines merged if the engine merges them."""
        if self._newlines is None:
            return token_ids, items
        return self._newlines.merge(token_ids, items)

    def _question(
        self, modality: Modality, size: MediaSize, options: Mapping[str, Any]
    ) -> Question:
        if modality == "image" and not checked.is_counted_alike(
            self._kind, size.width, size.height
        ):
            raise InputValueError(
                "vLLM and the model's processor count an image of this size differently"
            )
        if modality == "video" and size.height in {1, 3}:
            raise InputValueError("engines mistake the rows of so small a video for its channels")
        read_options(options, SCOPES[modality], ())
        return Question(
            modality,
            self.placeholders[modality].target,
            size.width,
            size.height,
            size.frames,
            size.fps,
            size.times,
            min(-(-size.samples // self._step) * self._step, self._longest),
            size.place,
        )
