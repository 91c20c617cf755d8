"""The processor options of a request (`mm_processor_kwargs`), as a family reads them."""

from collections.abc import Collection, Mapping
from typing import Any

from mmhash.errors import InputValueError
from mmhash.prompts.files import Section

_NAME = "mm_processor_kwargs"

# Options that change an item's values or which frames are sampled, but not its number of tokens.
_WITHOUT_EFFECT = frozenset({
    "device", "disable_grouping", "do_convert_rgb", "do_normalize", "do_rescale",
    "do_sample_frames", "fps", "image_mean", "image_std", "num_frames", "resample",
    "rescale_factor", "return_tensors",
})  # fmt: skip


def read_options(options: Mapping[str, Any], kind: str, known: Collection[str]) -> Section:
    """Return the options for a kind of items; those of the kind precede the others.

    An option that is not known is an InputValueError: it may change the number of tokens.
    """
    kinds = ("images_kwargs", "videos_kwargs", "audio_kwargs", "text_kwargs")
    flat = {name: value for name, value in options.items() if name not in kinds}
    own = Section(_NAME, dict(options)).section(kind)
    merged = flat | own.values
    unknown = sorted(set(merged) - _WITHOUT_EFFECT - set(known))
    if unknown:
        raise InputValueError(f"{_NAME}: {unknown[0][:60]} is not known for {kind}")
    return Section(_NAME, merged)


def read_flat_options(options: Mapping[str, Any], known: Collection[str]) -> Section:
    """Return the options for images, none of which may be in an object of a kind.

    vLLM reads options of `images_kwargs` in some of these families and overlooks them in others.
    """
    nested = sorted(name for name in options if name.endswith("_kwargs"))
    if nested:
        raise InputValueError(f"{_NAME}: {nested[0][:60]} is not known for this model")
    return read_options(options, "images_kwargs", known)
