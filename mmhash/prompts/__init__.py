"""Plans of prompts: token ids, spans and block keys as an engine will have them, without pixels."""

from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.files import UnknownModelError
from mmhash.prompts.media import KnownMedia, Media, UnknownMediaError
from mmhash.prompts.model import Model
from mmhash.prompts.plan import Plan, PlannedItem
from mmhash.prompts.templates import TemplateRenderError

__all__ = [
    "KnownMedia",
    "Media",
    "MediaSize",
    "Model",
    "Plan",
    "PlannedItem",
    "TemplateRenderError",
    "UnknownMediaError",
    "UnknownModelError",
]
