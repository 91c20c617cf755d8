"""docs/prompts.md has a line for each built-in family."""

from collections import defaultdict
from pathlib import Path

from mmhash.prompts.families.registry import BUILT_IN

PAGE = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text()


def test_the_table_has_each_family() -> None:
    types = defaultdict(list)
    for model_type, family in BUILT_IN.items():
        types[family.__name__].append(f"`{model_type}`")
    lines = [f"| `{family}` | {', '.join(listed)} |" for family, listed in types.items()]
    missing = [line for line in lines if line not in PAGE]
    assert not missing, "\n".join(missing)
