"""Ultravox as vLLM serves it: a clip is cut into windows, and a token stacks several steps.

The processor is a program in the model's directory, and is not run here. These rules follow the
version that vLLM needs, which returns the number of windows (`audio_num_chunks`).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import (
    Expansion,
    Family,
    MediaSize,
    Modality,
    Placeholder,
    check_count,
)
from mmhash.prompts.families.processor_options import read_options
from mmhash.prompts.files import ModelFiles, UnknownModelError


class Ultravox(Family):
    """Clips of Ultravox."""

    model_types: ClassVar[frozenset[str]] = frozenset({"ultravox"})
    engines: ClassVar[frozenset[str]] = frozenset({"vllm"})  # SGLang does not serve it

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.token = files.config.get("audio_token_index", int)
        self.hop = files.audio_processor.get("hop_length", int, 160)
        # The encoder halves the number of steps, and the projector stacks the rest.
        halved = files.processor.get("encoder_ds_factor", int, 2)
        self.stack = halved * files.config.get("stack_factor", int, 8)
        self.window = files.processor.get("audio_context_size", int, 3000)
        if min(self.hop, self.stack, self.window) < 1:
            raise UnknownModelError("a length in the files of the model is less than 1")

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of a clip: a text that must not be a single token."""
        return {"audio": Placeholder("<|audio|>", "<|audio|>")}

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return the tokens of all windows."""
        if modality != "audio":
            raise UnknownModelError(f"the model takes no {modality} items")
        read_options(options, "audio_kwargs", ())
        if size.samples < 1:
            raise InputValueError("the clip has no samples")
        # The processor pads shorter clips to two steps.
        steps = max(2, -(-size.samples // self.hop))
        full, rest = divmod(steps, self.window)
        count = full * -(-self.window // self.stack) + -(-rest // self.stack)
        check_count(count)
        return Expansion([self.token] * count)
