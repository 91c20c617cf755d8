import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.glm4v import Glm4V
from mmhash.prompts.files import UnknownModelError
from tests.unit.mmhash.prompts.families.model_files import model_files, token_id

LIMITS = {"size": {"shortest_edge": 12_544, "longest_edge": 9_633_792}}


def family(kind: str = "glm4v", engine: str = "", **settings: object) -> Glm4V:
    files = model_files(kind, engine, image_processor=LIMITS | settings, video_processor=LIMITS)
    return Glm4V(files)


def test_the_pixels_of_an_image_count_for_both_frames_of_a_patch() -> None:
    expansion = family().expand("image", MediaSize(4000, 3000), {})
    assert expansion.grid is not None
    rows, columns = expansion.grid[1:]
    assert 2 * rows * columns * 14 * 14 <= 9_633_792 < 2 * (rows + 2) * (columns + 2) * 14 * 14
    assert expansion.token_ids == [token_id("<|image|>")] * (rows * columns // 4)


@pytest.mark.parametrize(
    ("kind", "engine", "text"),
    [
        ("glm4v", "", b"1"),
        ("glm4v_moe", "vllm", b"1"),
        ("glm46v", "", b"1.5 seconds"),
        ("glm46v", "vllm", b"1.0 seconds"),  # vLLM cuts the fraction
    ],
)
def test_a_frame_of_a_video_ends_with_its_second(kind: str, engine: str, text: bytes) -> None:
    size = MediaSize(280, 280, frames=2, times=(1.5, 2.0))
    expansion = family(kind, engine).expand("video", size, {})
    names = ("<|begin_of_video|>", "<|begin_of_image|>", "<|end_of_image|>", "<|end_of_video|>")
    ids = [token for token in expansion.token_ids if token != token_id("<|image|>")]
    begin, start, end, last = map(token_id, names)
    assert ids == [begin, start, end, *text, last]


def test_sglang_and_models_without_a_video_processor_take_no_video() -> None:
    assert family(engine="sglang").placeholders().keys() == {"image"}
    files = model_files("glm4v", image_processor=LIMITS)
    with pytest.raises(UnknownModelError, match="video"):
        Glm4V(files).expand("video", MediaSize(280, 280, frames=2, fps=1.0), {})


def test_vllm_takes_one_video_in_a_prompt() -> None:
    size = MediaSize(280, 280, frames=2, fps=1.0, in_prompt=2)
    assert family().expand("video", size, {}).token_ids
    with pytest.raises(InputValueError, match="one video"):
        family(engine="vllm").expand("video", size, {})


def test_another_image_processor_is_refused() -> None:
    with pytest.raises(UnknownModelError, match="image_processor_type"):
        family("glm46v", image_processor_type="Glm4vImageProcessor")
