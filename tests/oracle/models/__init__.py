"""The models of the oracle: a module for each group of families."""

from tests.oracle.models import qwen
from tests.oracle.recipe import Recipe

MODELS: dict[str, Recipe] = qwen.MODELS
