import pytest

from mmhash import InputValueError
from mmhash.prompts.headers import ImageHeader, engine_size

TURNED = ImageHeader("JPEG", 3, 5, 6)


@pytest.mark.parametrize(
    ("engine", "version", "size"),
    [("vllm", "0.23.0", (3, 5)), ("vllm", "0.24.0", (5, 3)), ("vllm", "0.32.0", (5, 3)),
     ("sglang", "0.5.20", (3, 5)), ("sglang", "0.5.23", (3, 5))],
)  # fmt: skip
def test_size_that_an_engine_uses(engine: str, version: str, size: tuple[int, int]) -> None:
    assert engine_size(TURNED, engine, version) == size
    assert engine_size(ImageHeader("TIFF", 3, 5, 6), engine, version) == (5, 3)
    assert engine_size(ImageHeader("JPEG", 3, 5, 3), engine, version) == (3, 5)


def test_sglang_applies_orientation_of_glm_unless_the_gpu_decodes_them() -> None:
    header = ImageHeader("PNG", 3, 5, 6)
    assert engine_size(header, "sglang", "0.5.23", model_type="glm4v") == (5, 3)
    with pytest.raises(InputValueError, match="depends on its device"):
        engine_size(TURNED, "sglang", "0.5.23", model_type="glm4v")
