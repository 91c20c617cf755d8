"""Read the files of a model's directory. The operator owns the files, so they are trusted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from mmhash.prompts.files import ModelFiles, Section, UnknownModelError
from mmhash.prompts.processor.client import ModelProcessor
from mmhash.prompts.templates import OWN_ARGUMENTS
from mmhash.prompts.text_encoder import TextEncoder, is_panic

_SPECIAL_TOKENS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


class ModelDirectory(NamedTuple):
    """A model's parsed files, its text encoder and its templates."""

    files: ModelFiles
    encoder: TextEncoder
    templates: dict[str, str]
    """By name: "tool_use", if any, serves requests with tools, and "default" all other requests."""
    tool_templates: dict[str, str]
    """The templates in the tokenizer's config only: vLLM uses these for requests with tools."""
    special_tokens: dict[str, str]
    """The tokens that templates read by name, such as bos_token."""


def read_directory(
    directory: Path, *, unchecked: bool = False, trust_remote_code: bool = False
) -> ModelDirectory:
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
    tokenizer = _read_tokenizer(directory)
    encoder = TextEncoder(tokenizer)

    def token_id(text: str) -> int:
        found = tokenizer.token_to_id(text)
        if found is None:
            raise UnknownModelError(f"the tokenizer has no token {text[:60]!r}")
        return int(found)

    files = ModelFiles(
        config=config,
        image_processor=_nested(processor, "image_processor", preprocessor),
        video_processor=_nested(processor, "video_processor", video),
        audio_processor=_nested(processor, "feature_extractor", preprocessor),
        token_id=token_id,
        encode=encoder.encode,
        model_processor=ModelProcessor(directory, trust_remote_code=trust_remote_code),
        unchecked=unchecked,
    )
    of_tokenizer = dict(_member_templates(tokenizer_config)) | dict(_file_templates(directory))
    of_processor = dict(_member_templates(processor))
    of_processor |= dict(_member_templates(_read_section(directory, "chat_template.json")))
    of_processor |= dict(_file_templates(directory))
    return ModelDirectory(
        files,
        encoder,
        of_processor or of_tokenizer,
        of_tokenizer or of_processor,
        _read_special_tokens(directory, tokenizer_config),
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
        if extra.keys() & OWN_ARGUMENTS:
            raise UnknownModelError(
                "a special token has the name of a variable that chat templates use"
            )
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
