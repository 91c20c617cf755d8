"""docs/prompts.md names each family, and the limits that the code has."""

from pathlib import Path

from mmhash.prompts.families.family import MAX_TOKENS
from mmhash.prompts.families.registry import FAMILIES
from mmhash.prompts.templates import MAX_TEXT

PAGE = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text()


def test_the_table_has_each_family() -> None:
    lines = [
        f"| `{family.__name__}` | {', '.join(f'`{one}`' for one in sorted(family.model_types))} |"
        for family in FAMILIES
    ]
    missing = [line for line in lines if line not in PAGE]
    assert not missing, "\n".join(missing)


def test_the_limits_of_prompts_are_those_of_the_code() -> None:
    for limit, unit in ((MAX_TEXT, "characters"), (MAX_TOKENS, "tokens")):
        assert f"{limit:,} {unit}".replace(",", " ") in PAGE
