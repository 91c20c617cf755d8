"""A plan describes a prompt as an engine will see it."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from mmhash.digest import Digest
from mmhash.engines.engine import RequestFields, Span
from mmhash.prompts.items import MediaSize
from mmhash.requests import EngineRequest, Modality


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """An item of a prompt. Ranges are [start, end) in the plan's token ids."""

    modality: Modality
    key: Digest
    """The key that names the item to the engine, and covers the request's options too."""
    fields: RequestFields
    """The fields that carry this key to the engine."""
    size: MediaSize
    grid: tuple[int, ...] | None
    """The item's grid of patches, if the model's processor returns one."""
    start: int
    end: int
    embeds: list[tuple[int, int]]
    """The ranges that take embeddings. The item's other tokens only mark its structure."""
    engine_name: str | None = None
    """The engine's own name of the item, if it is known and `hashes="engine"` asked for it."""

    def payload(self) -> dict[str, Any]:
        """Return the item's size and place as JSON members."""
        return {
            "modality": self.modality,
            "width": self.size.width,
            "height": self.size.height,
            "grid": self.grid,
            "start": self.start,
            "end": self.end,
            "embeds": self.embeds,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The token ids of a prompt, its items, and the keys of its blocks.

    In a plan for a batch of completions, the prompts follow one another.
    """

    token_ids: list[int]
    items: list[PlannedItem]
    spans: list[Span]
    """The ranges that the engine names by an item, in the order of the prompt."""
    block_keys: list[bytes]
    """The keys of whole blocks, up to the first item whose hash the request cannot carry."""
    event_ids: list[int]
    """The ids of these blocks in the engine's KV events."""
    annotated: EngineRequest = field(compare=False)
    """The request with the hashes of its items."""
    lengths: list[int]
    """The number of token ids of each prompt; only a batch has several."""

    def __repr__(self) -> str:
        return (
            f"<Plan of {len(self.token_ids)} tokens, {len(self.items)} items, "
            f"{len(self.event_ids)} blocks>"
        )

    @property
    def blocks(self) -> list[str]:
        """The keys of the blocks in hex."""
        return [key.hex() for key in self.block_keys]

    @property
    def request(self) -> dict[str, Any]:
        """The request with the hashes of its items, parsed."""
        parsed: dict[str, Any] = msgspec.json.decode(self.annotated.write())
        return parsed

    def payload(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the plan as JSON members. The caller passes the items in its own form."""
        return {
            "token_ids": self.token_ids,
            "lengths": self.lengths,
            "items": items,
            "spans": [span.payload() for span in self.spans],
            "blocks": self.blocks,
            "event_ids": self.event_ids,
        }


def join_plans(plans: list[Plan]) -> Plan:
    """Join the plans of a batch's prompts, which have no items."""
    return Plan(
        [one for plan in plans for one in plan.token_ids],
        [],
        [],
        block_keys=[one for plan in plans for one in plan.block_keys],
        event_ids=[one for plan in plans for one in plan.event_ids],
        annotated=plans[0].annotated,
        lengths=[len(plan.token_ids) for plan in plans],
    )
