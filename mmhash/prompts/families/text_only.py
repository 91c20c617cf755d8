"""Models without items, such as Llama: the template and the tokenizer make the whole prompt."""

from collections.abc import Mapping
from typing import Any

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import Family
from mmhash.prompts.files import ModelFiles
from mmhash.prompts.items import Expansion, MediaSize
from mmhash.prompts.section import UnknownModelError
from mmhash.requests import Modality

# Models whose chats the engines write by programs of their own, not by the chat template.
_WITHOUT_TEMPLATE = frozenset({"deepseek_v32", "deepseek_v4", "gpt_oss"})


class TextOnly(Family):
    """A model without a processor."""

    def __init__(self, files: ModelFiles, engine: str = "", release: str = "") -> None:
        super().__init__(files, engine, release)
        self.placeholders = {}
        if files.model_type in _WITHOUT_TEMPLATE and not files.unchecked:
            raise UnknownModelError(
                f"engines write the chats of {files.model_type!r} without its chat template: mark"
                " the model as unchecked to plan it anyway"
            )

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Refuse the item."""
        del size, options
        raise InputValueError(f"the model takes no {modality} items")
