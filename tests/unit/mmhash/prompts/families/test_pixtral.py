"""What Pixtral and Mistral 3 refuse. The oracle's vectors have the prompts that they plan."""

import json
from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families import registry
from mmhash.prompts.families.family import Family, MediaSize
from mmhash.prompts.families.pixtral import Pixtral
from mmhash.prompts.files import Section, UnknownModelError
from mmhash.prompts.loading import read_directory
from tests.oracle import tokenizer
from tests.support.family_files import FIRST_SPECIAL

VECTORS = Path(__file__).parents[4] / "vectors" / "prompts"


def load(name: str, folder: Path, *, where: str = "config", **changes: Any) -> Family:
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
    return registry.find(read_directory(folder).files)


@pytest.mark.parametrize(
    ("name", "where", "changes"),
    [
        ("mistral3", "config", {"spatial_merge_size": 4}),
        ("pixtral", "processor", {"patch_size": 14}),
        ("pixtral", "image", {"size": {"longest_edge": 128}}),
        ("pixtral", "config", {"image_token_index": FIRST_SPECIAL + 1}),
    ],
)
def test_files_that_disagree_are_refused(
    tmp_path: Path, name: str, where: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(UnknownModelError):
        load(name, tmp_path, where=where, **changes)


@pytest.mark.parametrize(
    ("options", "size", "reason"),
    [
        ({"size": {"longest_edge": 32}}, MediaSize(9, 9), "size"),
        ({}, MediaSize(1, 8192), "1 x 8192"),
    ],
)
def test_options_and_sizes_without_a_plan(
    tmp_path: Path, options: dict[str, Any], size: MediaSize, reason: str
) -> None:
    with pytest.raises(InputValueError, match=reason):
        load("pixtral", tmp_path).expand("image", size, options)


def test_the_vision_tower_tells_pixtral_and_llava_apart(tmp_path: Path) -> None:
    pixtral = load("pixtral", tmp_path)
    assert isinstance(pixtral, Pixtral)
    config = pixtral.files.config.values | {"vision_config": {"model_type": "clip_vision_model"}}
    assert not Pixtral.takes(Section("config.json", config))
