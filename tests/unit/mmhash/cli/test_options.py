"""Options that several commands share."""

from typing import get_args

from mmhash.cli.options import EngineFallback
from mmhash.engines.releases import Fallback


def test_the_fallbacks_are_those_of_the_engines() -> None:
    """They are written twice, because the command would import all engines for them."""
    fallback, _ = get_args(EngineFallback)
    assert fallback == Fallback | None
