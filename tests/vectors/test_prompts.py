"""Prompts that transformers' processors made: `python -m tests.oracle --vectors` writes them."""

import json
from pathlib import Path
from typing import Any

import pytest

from mmhash.prompts.families import registry
from mmhash.prompts.loading import read_directory
from tests.oracle import tokenizer
from tests.oracle.compare import difference

FOLDER = Path(__file__).parent / "prompts"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_equal(path: Path, tmp_path: Path) -> None:
    vectors: dict[str, Any] = json.loads(path.read_text())
    for name, content in vectors["files"].items():
        (tmp_path / name).write_text(json.dumps(content))
    tokenizer.write(tmp_path, tuple(vectors["special"]))
    family = registry.find(read_directory(tmp_path))
    planned = [answer for answer in vectors["answers"] if "ids" in answer]
    assert planned
    for answer in vectors["answers"]:
        assert difference(family, vectors["modality"], answer) is None, answer
