"""The query and the response of `POST /plan`."""

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from mmhash.digest import Algorithm
from mmhash.engines.engine import BlockOptions
from mmhash_service.bodies.types import (
    MAX_MODEL_NAME,
    BlockSize,
    EngineName,
    RequestPath,
    Text,
)
from mmhash_service.items.schema import HashQuery, Item

ENGINE_NAME = "The engine, and its release if it is not the newest: sglang@0.5.23."

BlockAlgorithm = Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]


class BlockFields(BaseModel):
    """The options of `/plan` and `/blocks` that change the keys of blocks."""

    block_algorithm: BlockAlgorithm | None = Field(
        default=None, description="vLLM's --prefix-caching-hash-algo; sha256 by default."
    )
    seed: Text | None = Field(default=None, description="vLLM's PYTHONHASHSEED.")
    lora: Text | None = Field(default=None, description="The name of a LoRA adapter.")
    lora_path: Text | None = Field(
        default=None,
        description="The adapter's path. vLLM's block keys depend on it from 0.31 on.",
    )
    lookahead: Annotated[int, Field(ge=0, le=1024)] | None = Field(
        default=None, description="How many tokens after a block vLLM includes in its key."
    )

    @property
    def block_options(self) -> BlockOptions:
        """Return the options in the library's form."""
        return cast("BlockOptions", self.model_dump(include=set(BlockFields.model_fields)))


class PlanQuery(BlockFields):
    """The query of `POST /plan`: how the engine was started, and how items are hashed."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    model: Annotated[str, Field(max_length=MAX_MODEL_NAME)] = Field(
        description="A name in the setting models."
    )
    engine: EngineName = Field(description=ENGINE_NAME)
    path: RequestPath = None
    algorithm: Algorithm = "blake3"
    of: Literal["bytes", "pixels"] = "bytes"
    block_size: BlockSize | None = Field(
        default=None,
        description="The number of tokens that the engine hashes at once: 16 for vLLM and 1 for "
        "SGLang by default.",
    )
    model_id: Text | None = Field(
        default=None,
        description="The engine's name for the model. Names of media depend on it if the request "
        "has processor options.",
    )
    request: bool = Field(
        default=False, description="Also return the request with the hashes of its items."
    )

    def of_items(self) -> HashQuery:
        """Return the equivalent query of `POST /hash`, for the items."""
        return HashQuery(
            algorithm=self.algorithm,
            of=self.of,
            engines=self.engine,
        )


class PlannedSpan(BaseModel):
    """A range of tokens that the engine names by an item's key, in the form of `/blocks`."""

    start: int
    end: int
    key: str


class PlannedItem(Item):
    """An item of a prompt: its key in the engine's form, and its place. `end` is exclusive."""

    modality: Literal["image", "video", "audio"]
    width: int = Field(description="The width that the engine's processor receives.")
    height: int
    grid: list[int] | None = Field(description="The item's patches, if the processor counts them.")
    start: int
    end: int
    embeds: list[tuple[int, int]] = Field(
        description="The ranges that the engine fills with embeddings. The item's other tokens are "
        "structure."
    )


class PlanAnswer(BaseModel):
    """A prompt as the engine will see it, and the request if the query asks for it."""

    token_ids: list[int]
    spans: list[PlannedSpan]
    blocks: list[str]
    event_ids: list[int]
    items: list[PlannedItem]
    lengths: list[int] = Field(
        description="The number of tokens in each prompt. A batch of completions has several "
        "prompts, and lists their tokens and blocks one after another."
    )
    request: dict[str, Any] | None = Field(
        default=None, description="The request with the hashes of its items."
    )
