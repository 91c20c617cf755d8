"""The models of the setting `models`."""

from pathlib import Path

from mmhash.prompts.templates import compiled
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
