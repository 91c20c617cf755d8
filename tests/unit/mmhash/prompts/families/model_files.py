"""Files of models for the tests of families."""

from typing import Any

from mmhash.prompts.files import ModelFiles, Section, UnknownModelError

TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


def token_id(text: str) -> int:
    """Return the id of a special token, from 1000."""
    if text not in TOKENS:
        raise UnknownModelError(f"no {text}")
    return 1000 + TOKENS.index(text)


def model_files(kind: str, engine: str = "", release: str = "", **parts: Any) -> ModelFiles:
    """Return a model's files; a text has an id for each byte."""
    config = {"model_type": kind} | parts.pop("config", {})
    names = ("image_processor", "video_processor", "audio_processor")
    sections = {name: Section(name, parts.pop(name, {})) for name in names}
    assert not parts
    return ModelFiles(
        config=Section("config.json", config),
        **sections,
        token_id=token_id,
        encode=lambda text: list(text.encode()),
        engine=engine,
        release=release,
    )
