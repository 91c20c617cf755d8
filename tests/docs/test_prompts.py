"""docs/prompts.md has a line for each model family."""

from pathlib import Path

from mmhash.prompts.families.registry import FAMILIES

PAGE = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text()


def test_the_table_has_each_family() -> None:
    lines = [
        f"| `{family.__name__}` | {', '.join(f'`{one}`' for one in sorted(family.model_types))} |"
        for family in FAMILIES
    ]
    missing = [line for line in lines if line not in PAGE]
    assert not missing, "\n".join(missing)
