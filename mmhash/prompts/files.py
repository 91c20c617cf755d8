"""The parsed files of a model's directory."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmhash.prompts.processor.client import ModelProcessor
from mmhash.prompts.section import Section, UnknownModelError
from mmhash.prompts.templates import ChatTemplate, compiled

if TYPE_CHECKING:
    from mmhash.prompts.text_encoder import TextEncoder  # imports tokenizers


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The parsed files of a model. A missing file is an empty section."""

    config: Section
    """config.json"""
    image_processor: Section
    """preprocessor_config.json, or `image_processor` of processor_config.json"""
    video_processor: Section
    """video_preprocessor_config.json, or `video_processor` of processor_config.json"""
    audio_processor: Section
    """an audio model's preprocessor_config.json, or `feature_extractor` of processor_config.json"""
    takes_media: bool
    """False for a text-only model, which has neither a processor nor a vision or audio tower."""
    encoder: "TextEncoder"
    """The tokenizer."""
    model_processor: ModelProcessor
    """The model's own processor, in a helper process."""
    unchecked: bool
    """The operator allows plans although nobody has compared the processor with the engine."""
    chat_template: str | None
    tool_template: str | None
    """The template for requests with tools to vLLM."""
    special_tokens: dict[str, str]
    """The tokens that templates read by name, such as bos_token."""

    @property
    def model_type(self) -> str:
        """The `model_type` of config.json."""
        return str(self.config.values.get("model_type"))

    def template(self, source: str | None, *, with_tools: bool) -> ChatTemplate:
        """Return the template with this source, or the model's own."""
        if source is None:
            source = self.tool_template if with_tools else self.chat_template
        if source is None:
            raise UnknownModelError("the model has no chat template: pass one as chat_template")
        return compiled(source)
