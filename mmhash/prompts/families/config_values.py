"""Read values of a model's files within bounds, because families loop over and multiply them."""

from mmhash.prompts.files import ModelFiles, Section, UnknownModelError

# No known model exceeds this with a side, a count or the length of a list.
MAX_VALUE = 1 << 16


def read_count(
    settings: Section, name: str, default: int | None = None, most: int = MAX_VALUE
) -> int:
    """Return a setting from 1 to `most`. Raise UnknownModelError for any other value."""
    value = settings.get(name, int, default)
    if not 1 <= value <= most:
        raise UnknownModelError(f"{name} in {settings.where} must be from 1 to {most}")
    return value


def require_equal(settings: Section, name: str, value: object) -> None:
    """Refuse a model whose files disagree: engine and processor would use different values."""
    if name in settings and settings.values[name] != value:
        raise UnknownModelError(f"{name} in {settings.where} contradicts config.json")


def read_token(files: ModelFiles, name: str, default: str | None = None) -> str:
    """Return the token of this name in the tokenizer's config, such as `image_token`."""
    for section in (
        files.tokenizer,
        files.tokenizer.section("model_specific_special_tokens"),
        _read_extra_tokens(files.tokenizer),
    ):
        value = section.values.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            return value
    if default is None:
        raise UnknownModelError(f"{files.tokenizer.where} has no {name}")
    return default


def _read_extra_tokens(tokenizer: Section) -> Section:
    """Return `extra_special_tokens` if it maps names to tokens. In newer files it is a list."""
    value = tokenizer.values.get("extra_special_tokens")
    return Section(tokenizer.where, value if isinstance(value, dict) else {})


def check_token(files: ModelFiles, text: str, default: int) -> int:
    """Return the id of the image token. Raise if config.json and the tokenizer disagree."""
    config = files.config
    name = "image_token_index" if "image_token_index" in config else "image_token_id"
    token = files.token_id(text)
    if token != config.get(name, int, default):
        raise UnknownModelError(f"{name} in {config.where} is not the id of {text!r}")
    return token
