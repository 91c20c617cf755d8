"""The size of an image as an engine's processor receives it: with its orientation, or without.

- vLLM turns images from 0.24.0 on (`normalize_image` when it loads bytes); 0.23.0 did not.
- SGLang turns none, except for the GLM-4V models (`smart_rgb_conversion`), and there only what
  Pillow decodes: nvJPEG decodes a JPEG as it is stored if the engine runs on CUDA.
- Pillow itself turns a TIFF when it loads it, so that every engine has it turned.
"""

from mmhash.engines.vllm.releases import applies_orientation
from mmhash.errors import InputValueError
from mmhash.prompts.headers.header import ImageHeader

_SGLANG_TURNS = frozenset({"glm4v", "glm4v_moe", "glm_ocr"})


def engine_size(
    header: ImageHeader, engine: str, version: str, *, model_type: str = ""
) -> tuple[int, int]:
    """Return the width and height that the processor of an engine's release receives."""
    stored = (header.width, header.height)
    if stored == header.oriented or header.format == "TIFF":
        return header.oriented
    if engine == "vllm":
        return header.oriented if applies_orientation(version) else stored
    if engine == "sglang" and model_type not in _SGLANG_TURNS:
        return stored
    if engine == "sglang" and header.format != "JPEG":
        return header.oriented
    raise InputValueError(
        f"an image has EXIF orientation {header.orientation}: whether {engine} applies it depends"
        " on its device, so turn the pixels and remove the orientation"
    )
