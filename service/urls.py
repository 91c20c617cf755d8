"""Items by URL."""

from mmhash_service.call import Call
from mmhash_service.problems import Problem
from mmhash_service.schemas import Item, JsonItem


async def hash_url(call: Call, item: JsonItem, url: str) -> list[Item]:  # noqa: ARG001
    """What the URL points to, as the item wants it."""
    raise Problem("url-off")
