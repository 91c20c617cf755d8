"""The query of `POST /plan`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mmhash.digest import Algorithm
from mmhash_service.bodies.types import (
    MAX_MODEL_NAME,
    BlockSize,
    RequestPath,
    Text,
)
from mmhash_service.items.schema import HashQuery

_PLANNED = "vllm|sglang"
ENGINE_NAME = "The engine, and its release if it is not the newest: sglang@0.5.23."

BlockAlgorithm = Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]


class PlanQuery(BaseModel):
    """The query of `POST /plan`: how the engine was started, and how items are hashed."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    model: Annotated[str, Field(max_length=MAX_MODEL_NAME)] = Field(
        description="A name of the setting models."
    )
    engine: Annotated[str, Field(max_length=64, pattern=rf"^({_PLANNED})(@.+)?$")] = Field(
        description=ENGINE_NAME
    )
    path: RequestPath = None
    algorithm: Algorithm = "blake3"
    of: Literal["bytes", "pixels"] = "bytes"
    block_size: BlockSize | None = Field(
        default=None,
        description="The number of tokens that the engine hashes at once: 16 for vLLM and 1 for "
        "SGLang by default.",
    )
    block_algorithm: BlockAlgorithm | None = Field(
        default=None, description="vLLM's --prefix-caching-hash-algo; sha256 by default."
    )
    seed: Text | None = Field(default=None, description="The PYTHONHASHSEED of vLLM.")
    lora: Text | None = Field(default=None, description="The name of a LoRA adapter.")
    lora_path: Text | None = None
    lookahead: Annotated[int, Field(ge=0, le=1024)] | None = None
    model_id: Text | None = Field(
        default=None,
        description="The engine's name of the model, which counts if the request has processor "
        "options.",
    )
    request: bool = Field(
        default=False, description="Return the request with the hashes of its items too."
    )

    def of_items(self) -> HashQuery:
        """Return the equivalent query of `POST /hash`, for the items."""
        return HashQuery(
            algorithm=self.algorithm,
            of=self.of,
            engines=self.engine,
        )

    def plan_options(self) -> dict[str, Any]:
        """Return the options of `Model.plan`."""
        names = ("block_size", "seed", "lora", "lora_path", "lookahead", "model_id")
        options = {name: getattr(self, name) for name in names}
        return options | {"block_algorithm": self.block_algorithm}
