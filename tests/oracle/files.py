"""A model's directory as the families read it."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from mmhash.prompts.files import ModelFiles, Section, UnknownModelError


def load(folder: Path, engine: str = "", release: str = "") -> ModelFiles:
    """Return the files of a directory."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def section(name: str, member: str | None = None) -> Section:
        path = folder / name
        values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return Section(name, values if member is None else values.get(member) or {})

    def first(*sections: Section) -> Section:
        return next((s for s in sections if s.values), sections[-1])

    def token_id(token: str) -> int:
        found = tokenizer.token_to_id(token)
        if found is None:
            raise UnknownModelError(f"the tokenizer has no {token}")
        return found

    own, old = "processor_config.json", "preprocessor_config.json"
    return ModelFiles(
        config=section("config.json"),
        image_processor=first(section(old), section(own, "image_processor")),
        video_processor=first(
            section("video_preprocessor_config.json"), section(own, "video_processor")
        ),
        audio_processor=first(section(old), section(own, "feature_extractor")),
        processor=section(own),
        tokenizer=section("tokenizer_config.json"),
        token_id=token_id,
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        engine=engine,
        release=release,
    )
