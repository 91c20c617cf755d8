"""Read values of a model's files within bounds, because families loop over and multiply them."""

from mmhash.prompts.files import ModelFiles, Section, UnknownModelError

# No side, count or list length of a known model exceeds this limit.
MAX_VALUE = 1 << 16


def read_count(
    settings: Section, name: str, default: int | None = None, most: int = MAX_VALUE
) -> int:
    """Return a setting from 1 to `most`. Raise UnknownModelError for any other value."""
    value = settings.get(name, int, default)
    if not 1 <= value <= most:
        raise UnknownModelError(f"{name} in {settings.where} must be from 1 to {most}")
    return value


def read_token(files: ModelFiles, name: str) -> str:
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
    raise UnknownModelError(f"{files.tokenizer.where} has no {name}")


def _read_extra_tokens(tokenizer: Section) -> Section:
    """Return `extra_special_tokens` if it maps names to tokens. In newer files it is a list."""
    value = tokenizer.values.get("extra_special_tokens")
    return Section(tokenizer.where, value if isinstance(value, dict) else {})
