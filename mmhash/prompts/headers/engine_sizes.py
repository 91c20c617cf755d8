"""The size at which an engine's processor receives an image, with or without its orientation.

- vLLM applies the orientation from 0.24.0 on (`normalize_image`, when it loads bytes).
- SGLang applies it for the GLM-4V models only (`smart_rgb_conversion`), and only to images that
  Pillow decodes. On CUDA, nvJPEG decodes a JPEG without it.
- Pillow applies the orientation of a TIFF while loading it, so every engine gets it applied.
"""

from mmhash.engines.vllm.releases import applies_orientation
from mmhash.errors import InputValueError
from mmhash.prompts.headers.header import ImageHeader

_SGLANG_TURNS = frozenset({"glm4v", "glm4v_moe", "glm_ocr"})


def engine_size(
    header: ImageHeader, engine: str, version: str, *, model_type: str = ""
) -> tuple[int, int]:
    """Return the width and height that the processor of this engine receives."""
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
        " on its device, so rotate the pixels and remove the orientation"
    )
