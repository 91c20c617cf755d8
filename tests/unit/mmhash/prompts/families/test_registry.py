"""What the families refuse: settings, options, sizes and engines by which a plan would differ.

The prompts that they do plan are in tests/vectors/prompts, as the models' own processors made them.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families import registry
from mmhash.prompts.families.family import Family, MediaSize
from mmhash.prompts.families.pixtral import Pixtral
from mmhash.prompts.families.tiles import list_grids
from mmhash.prompts.files import Section, UnknownModelError
from mmhash.prompts.loading import read_directory
from tests.oracle import tokenizer
from tests.support.family_files import FIRST_SPECIAL, INTERNVL_CHAT, write_files

VECTORS = Path(__file__).parents[4] / "vectors" / "prompts"
HUGE = 10**9


def load(
    name: str, folder: Path, *, engine: str = "", where: str = "config", **changes: Any
) -> Family:
    """Load the model of a vector, with other settings in its config, processor or image processor."""
    vectors = json.loads((VECTORS / f"{name}.json").read_text())
    processor = vectors["files"]["processor_config.json"]
    image = processor["image_processor"]
    {"config": vectors["files"]["config.json"], "processor": processor, "image": image}[
        where
    ].update(changes)
    for file, content in vectors["files"].items():
        (folder / file).write_text(json.dumps(content))
    tokenizer.write(folder, tuple(vectors["special"]))
    return registry.find(replace(read_directory(folder).files, engine=engine))


@pytest.mark.parametrize(
    ("name", "where", "changes"),
    [
        ("mistral3", "config", {"spatial_merge_size": 4}),
        ("phi4", "image", {"dynamic_hd": 10**6}),
        ("phi4", "image", {"size": {"height": 384, "width": 384}}),
        ("phi4", "image", {"patch_size": 16}),
        ("pixtral", "processor", {"patch_size": 14}),
        ("pixtral", "image", {"size": {"longest_edge": 128}}),
        ("pixtral", "config", {"image_token_index": FIRST_SPECIAL + 1}),
    ],
)
def test_settings_that_no_processor_has_are_refused(
    tmp_path: Path, name: str, where: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(UnknownModelError):
        load(name, tmp_path, where=where, **changes).expand("image", MediaSize(640, 480), {})


@pytest.mark.parametrize(
    ("name", "options", "size", "reason"),
    [
        ("pixtral", {"size": {"longest_edge": 32}}, MediaSize(9, 9), "size"),
        ("pixtral", {}, MediaSize(1, 8192), "1 x 8192"),
        ("phi4", {}, MediaSize(1, 8000), "1 x 8000"),
    ],
)
def test_options_and_sizes_that_are_not_planned_are_refused(
    tmp_path: Path, name: str, options: dict[str, Any], size: MediaSize, reason: str
) -> None:
    with pytest.raises(InputValueError, match=reason):
        load(name, tmp_path).expand("image", size, options)


def load_internvl_chat(folder: Path, **changes: Any) -> Family:
    tokens = ("<img>", "</img>", "<IMG_CONTEXT>")
    return registry.find(write_files(folder, tokens, INTERNVL_CHAT | changes))


@pytest.mark.parametrize(
    ("size", "options", "tiles"),
    [
        (MediaSize(448, 448), {}, 1),
        (MediaSize(896, 448), {}, 3),
        (MediaSize(896, 448), {"use_thumbnail": False}, 2),
        (MediaSize(4000, 3000), {"max_dynamic_patch": 4}, 5),
        (MediaSize(4000, 3000), {"dynamic_image_size": False}, 1),
    ],
)
def test_internvl_in_its_own_form(
    tmp_path: Path, size: MediaSize, options: dict[str, Any], tiles: int
) -> None:
    """The oracle has no processor of it."""
    expansion = load_internvl_chat(tmp_path).expand("image", size, options)
    start = FIRST_SPECIAL
    assert expansion.token_ids == [start, *[start + 2] * 256 * tiles, start + 1]
    assert expansion.embeds == [(1, 256 * tiles + 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"downsample_ratio": 0.0},
        {"downsample_ratio": float("nan")},
        {"downsample_ratio": 2.0},
        {"max_dynamic_patch": HUGE},
        {"use_thumbnail": "yes"},
        {"dynamic_image_size": None},
        {"vision_config": {"image_size": 448}},
    ],
)
def test_other_settings_of_its_own_form_are_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    with pytest.raises(UnknownModelError):
        load_internvl_chat(tmp_path, **changes)


def test_grids_in_set_order_are_those_of_vllm() -> None:
    """The order of a set depends on that in which it got its values."""
    for least, most in ((1, 1), (1, 12), (3, 40), (7, 64), (1, 64), (64, 64), (5, 4)):
        grids = {
            (columns, rows)
            for tiles in range(least, most + 1)
            for columns in range(1, tiles + 1)
            for rows in range(1, tiles + 1)
            if least <= columns * rows <= most
        }
        expected = sorted(grids, key=lambda grid: grid[0] * grid[1])
        assert list_grids(least, most) == expected


def test_the_vision_tower_tells_pixtral_and_llava_apart(tmp_path: Path) -> None:
    pixtral = load("pixtral", tmp_path)
    assert isinstance(pixtral, Pixtral)
    config = pixtral.files.config.values | {"vision_config": {"model_type": "clip_vision_model"}}
    assert not Pixtral.takes(Section("config.json", config))


# SGLang expands these by rules that are not the family's, or does not serve them.
OTHER_IN_SGLANG = (
    "internvl_chat", "phi4_multimodal", "phi4mm",
)  # fmt: skip


@pytest.mark.parametrize("kind", OTHER_IN_SGLANG)
def test_a_family_is_refused_for_an_engine_with_other_rules(kind: str, tmp_path: Path) -> None:
    files = write_files(tmp_path, (), {"model_type": kind}, engine="sglang")
    with pytest.raises(UnknownModelError, match=f"{kind}.*sglang"):
        registry.find(files)
