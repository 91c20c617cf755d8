"""Read the processor options of a request (`mm_processor_kwargs`)."""

from collections.abc import Collection, Mapping
from typing import Any

from mmhash.errors import InputValueError
from mmhash.prompts.section import Section

_NAME = "mm_processor_kwargs"

# Options that change an item's values or the sampled frames, but not the number of tokens.
_WITHOUT_EFFECT = frozenset({
    "device", "disable_grouping", "do_convert_rgb", "do_normalize", "do_rescale",
    "do_sample_frames", "fps", "image_mean", "image_std", "num_frames", "resample",
    "rescale_factor", "return_tensors",
})  # fmt: skip


def read_options(options: Mapping[str, Any], kind: str, known: Collection[str]) -> Section:
    """Return the options for one kind of item. Options under the kind's name take precedence.

    An unknown option raises InputValueError, because it may change the number of tokens.
    """
    kinds = ("images_kwargs", "videos_kwargs", "audio_kwargs", "text_kwargs")
    flat = {name: value for name, value in options.items() if name not in kinds}
    own = Section(_NAME, dict(options)).section(kind)
    merged = flat | own.values
    unknown = sorted(set(merged) - _WITHOUT_EFFECT - set(known))
    if unknown:
        raise InputValueError(
            f"{_NAME}: mmhash does not know the option {unknown[0][:60]} for {kind}"
        )
    return Section(_NAME, merged)
