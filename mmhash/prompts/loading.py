"""Read the files of a model's directory. The operator owns the files, so they are trusted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from mmhash.prompts.files import ModelFiles
from mmhash.prompts.processor.client import ModelProcessor
from mmhash.prompts.section import Section, UnknownModelError
from mmhash.prompts.text_encoder import TextEncoder, is_panic

_SPECIAL_TOKENS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


def read_directory(
    directory: Path, *, unchecked: bool = False, trust_remote_code: bool = False
) -> ModelFiles:
    """Read a model's directory. Raise UnknownModelError if a file is missing or wrong."""
    if not directory.is_dir():
        raise UnknownModelError(
            f"{directory} is not a directory: download the model, and pass its directory"
        )
    config = _read_section(directory, "config.json", required=True)
    tokenizer_config = _read_section(directory, "tokenizer_config.json")
    processor = _read_section(directory, "processor_config.json")
    preprocessor = _read_section(directory, "preprocessor_config.json")
    video = _read_section(directory, "video_preprocessor_config.json")
    files = dict(_file_templates(directory))
    of_tokenizer = dict(_member_templates(tokenizer_config)) | files
    of_processor = dict(_member_templates(processor))
    of_processor |= dict(_member_templates(_read_section(directory, "chat_template.json"))) | files
    # vLLM takes the tokenizer's templates for requests with tools.
    for_tools = of_tokenizer or of_processor
    return ModelFiles(
        config=config,
        image_processor=_nested(processor, "image_processor", preprocessor),
        video_processor=_nested(processor, "video_processor", video),
        audio_processor=_nested(processor, "feature_extractor", preprocessor),
        takes_media=any(one.values for one in (processor, preprocessor, video))
        or any(tower in config for tower in ("vision_config", "audio_config")),
        encoder=TextEncoder(_read_tokenizer(directory)),
        model_processor=ModelProcessor(directory, trust_remote_code=trust_remote_code),
        unchecked=unchecked,
        chat_template=(of_processor or of_tokenizer).get("default"),
        tool_template=for_tools.get("tool_use") or for_tools.get("default"),
        special_tokens=_read_special_tokens(directory, tokenizer_config),
    )


def _nested(outer: Section, name: str, file: Section) -> Section:
    return outer.section(name) if name in outer else file


def _read_special_tokens(directory: Path, config: Section) -> dict[str, str]:
    values = _read_section(directory, "special_tokens_map.json").values | config.values
    found = {}
    for name in (f"{kind}_token" for kind in _SPECIAL_TOKENS):
        value = values.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    # transformers 5 also offers the extra tokens of a multimodal model.
    extra = config.values.get("extra_special_tokens")
    if isinstance(extra, dict):
        found |= {name: value for name, value in extra.items() if isinstance(value, str)}
    return found


def _file_templates(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield the named templates that are files. Only the default template is outside the folder."""
    folder = directory / "additional_chat_templates"
    if folder.is_dir():
        for path in sorted(folder.glob("*.jinja")):
            yield path.stem, _read_text(path)
    path = directory / "chat_template.jinja"
    if path.exists():
        yield "default", _read_text(path)


def _member_templates(section: Section) -> Iterator[tuple[str, str]]:
    value = section.values.get("chat_template")
    if isinstance(value, str):
        yield "default", value
    elif isinstance(value, dict):
        yield from ((name, text) for name, text in value.items() if isinstance(text, str))
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, dict) and isinstance(one.get("template"), str):
                yield str(one.get("name")), one["template"]


def _read_tokenizer(directory: Path) -> Tokenizer:
    data = _read_file(directory / "tokenizer.json")
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except BaseException as error:  # tokenizers raises plain Exception, and panics
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise UnknownModelError(f"tokenizer.json is not usable: {str(error)[:200]}") from error
    # A file may ask for truncation or padding; engines ignore both.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read_section(directory: Path, name: str, *, required: bool = False) -> Section:
    path = directory / name
    if not required and not path.exists():
        return Section(name, {})
    data = _read_file(path)
    try:
        values: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnknownModelError(f"{name} is not JSON: {str(error)[:200]}") from error
    if not isinstance(values, dict):
        raise UnknownModelError(f"{name} is not a JSON object")
    return Section(name, values)


def _read_text(path: Path) -> str:
    try:
        return _read_file(path).decode()
    except UnicodeDecodeError as error:
        raise UnknownModelError(f"{path.name} is not UTF-8") from error


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise UnknownModelError(f"{path} cannot be read: {reason}") from error
