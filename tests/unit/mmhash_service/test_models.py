"""The models of the setting `models`."""

from pathlib import Path

import pytest

from mmhash.prompts.templates import compiled
from mmhash_service import models as module
from mmhash_service.models import Models
from mmhash_service.settings import ModelSource
from tests.support.prompt_models import write_qwen2_vl


def test_the_first_chat_need_not_compile_the_template(tmp_path: Path) -> None:
    compiled.cache_clear()
    models = Models({"tiny": ModelSource(path=write_qwen2_vl(tmp_path))})
    compilations = compiled.cache_info().misses
    for with_tools in (False, True):
        models.find("tiny").files.template(None, with_tools=with_tools)
    assert compiled.cache_info().misses == compilations


def test_a_renamed_model_is_found_by_either_name_until_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading takes seconds, in which the service answers requests."""
    source = ModelSource(path=write_qwen2_vl(tmp_path))
    models = Models({"old": source})
    load = module._load
    names_at_load: list[list[str]] = []

    def note_names(name: str, source: ModelSource) -> object:
        names_at_load.append(models.names)
        return load(name, source)

    monkeypatch.setattr(module, "_load", note_names)
    models.reload({"new": source})
    assert names_at_load == [["old"]]
    assert models.names == ["new"]
