"""Plans: the token ids, spans and block keys that an engine will have for a prompt."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mmhash.extras import needs_extra

if TYPE_CHECKING:
    from mmhash.prompts.items import Media as Media
    from mmhash.prompts.items import MediaSize as MediaSize
    from mmhash.prompts.items import UnknownMediaError as UnknownMediaError
    from mmhash.prompts.model import Model as Model
    from mmhash.prompts.options import PlanOptions as PlanOptions
    from mmhash.prompts.plan import Plan as Plan
    from mmhash.prompts.plan import PlannedItem as PlannedItem
    from mmhash.prompts.section import UnknownModelError as UnknownModelError
    from mmhash.prompts.templates import TemplateRenderError as TemplateRenderError

__all__ = [
    "Media",
    "MediaSize",
    "Model",
    "Plan",
    "PlanOptions",
    "PlannedItem",
    "TemplateRenderError",
    "UnknownMediaError",
    "UnknownModelError",
]

# Imported lazily: programs that only read image headers need neither tokenizers nor jinja2.
_MODULES = {
    "Media": "items",
    "MediaSize": "items",
    "Model": "model",
    "Plan": "plan",
    "PlanOptions": "options",
    "PlannedItem": "plan",
    "TemplateRenderError": "templates",
    "UnknownMediaError": "items",
    "UnknownModelError": "section",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs_extra("prompts"):
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
