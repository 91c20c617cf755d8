"""Qwen2-Audio: a token stands for four steps of a clip's spectrogram, up to one window."""

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


class Qwen2Audio(Family):
    """Clips of Qwen2-Audio."""

    model_types: ClassVar[frozenset[str]] = frozenset({"qwen2_audio"})

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        settings = files.audio_processor
        kind = settings.get("feature_extractor_type", str)
        if kind != "WhisperFeatureExtractor":
            raise UnknownModelError(f"feature_extractor_type {kind[:60]!r} in {settings.where}")
        self.hop = settings.get("hop_length", int, 160)
        seconds = settings.get("chunk_length", int, 30)
        self.window = seconds * settings.get("sampling_rate", int, 16_000)
        if min(self.hop, self.window) < 1:
            raise UnknownModelError(f"a length in {settings.where} is less than 1")
        self.token = files.token_id("<|AUDIO|>")

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of a clip."""
        text = "Audio {i}: <|audio_bos|><|AUDIO|><|audio_eos|>"
        return {"audio": Placeholder("<|AUDIO|>", text)}

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return a token for every four steps. Clips longer than a window are cut."""
        if modality != "audio":
            raise UnknownModelError(f"the model takes no {modality} items")
        read_options(options, "audio_kwargs", ())
        steps = -(-min(size.samples, self.window) // self.hop)
        if self.window % self.hop:
            # The processor cuts off the window's last step.
            steps = min(steps, self.window // self.hop)
        count = ((steps - 1) // 2 + 1 - 2) // 2 + 1
        if count < 1:
            raise InputValueError(f"the model takes no clip of {size.samples} samples")
        check_count(count)
        return Expansion([self.token] * count)
