"""`POST /annotate`, `/plan`, `/pad` and `/blocks`: requests and prompts for engines."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from mmhash_service.bodies.types import (
    RECIPE,
    BlockSize,
    EngineName,
    Hex16,
    Hex64,
    Natural,
    RequestModel,
    RequestPath,
    Text,
    Token,
)
from mmhash_service.endpoints.schemas.items import Item
from mmhash_service.items.schema import HashQuery, Query
from mmhash_service.plan.schema import ENGINE_NAME, BlockFields


class AnnotateQuery(Query):
    """The query of `POST /annotate`."""

    engine: EngineName = Field(
        description="The engine that receives the request, and its release if it is not the newest."
    )
    path: RequestPath = None

    def of_items(self) -> HashQuery:
        """Return the query of `POST /hash` that hashes the same items."""
        return HashQuery(
            algorithm=self.algorithm,
            of=self.of,
            sign=self.sign,
            engines=self.engine,
        )


class Span(RequestModel):
    """The range of an item's placeholders, excluding `end`, and the item's key or hash."""

    start: Natural
    end: Natural
    key: Hex64 | None = Field(default=None, description="The key returned by `POST /hash`.")
    hash: Hex16 | None = Field(default=None, description="The 64-bit hash that SGLang uses.")


class PadBody(RequestModel):
    """The body of `POST /pad`."""

    engine: EngineName = Field(description=ENGINE_NAME)
    input_ids: Annotated[list[Token], Field(fail_fast=True)]
    spans: Annotated[list[Span], Field(fail_fast=True)]


class BlocksBody(RequestModel, BlockFields):
    """The body of `POST /blocks`."""

    engine: EngineName = Field(description=ENGINE_NAME)
    input_ids: Annotated[list[Token], Field(fail_fast=True)]
    block_size: BlockSize = Field(
        description="The number of tokens that the engine hashes at once."
    )
    spans: list[Span] = Field(default=[], fail_fast=True)
    cache_salt: Text | None = None
    extra_key: Text | None = None


class PlannedSpan(BaseModel):
    """A range that the engine names by an item's key, as `/blocks` takes it."""

    start: int
    end: int
    key: str


class AnnotateAnswer(BaseModel):
    """The request with hashes inserted, and the item of each hash, in the same order."""

    request: dict[str, Any]
    items: list[Item]
    recipe: str | None = RECIPE


class PlannedItem(Item):
    """An item of a prompt: its key as the engine has it, and its place, without `end`."""

    modality: Literal["image", "video", "audio"]
    width: int = Field(description="The width that the engine's processor receives.")
    height: int
    grid: list[int] | None = Field(description="The item's patches, if the processor counts them.")
    start: int
    end: int
    embeds: list[tuple[int, int]] = Field(
        description="The ranges that take embeddings: other tokens are structure."
    )


class PlanAnswer(BaseModel):
    """A prompt as the engine will see it, and the request if the query asks for it."""

    token_ids: list[int]
    spans: list[PlannedSpan]
    blocks: list[str]
    event_ids: list[int]
    items: list[PlannedItem]
    lengths: list[int] = Field(
        description="The number of tokens of each prompt: one, but for a batch of completions, "
        "whose tokens and blocks stand one after another."
    )
    request: dict[str, Any] | None = Field(
        default=None, description="The request with the hashes of its items."
    )
    recipe: str | None = RECIPE


class PadAnswer(BaseModel):
    """The token ids with the pad values in each span."""

    input_ids: list[int]
    recipe: str | None = RECIPE


class BlockList(BaseModel):
    """The key of each block in hex, as the engine's cache has it, and its id in KV events."""

    blocks: list[str]
    event_ids: list[int]


class BlocksAnswer(BlockList):
    """The blocks of a prompt."""

    recipe: str | None = RECIPE
