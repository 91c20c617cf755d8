"""Items in requests and responses: the query, the JSON body and the response of `POST /hash`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mmhash.digest import Algorithm
from mmhash.view import Kind
from mmhash_service.bodies.types import EngineNames, Natural, RequestModel, Text


class Query(BaseModel):
    """The query parameters that `/hash` and `/annotate` share."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    algorithm: Algorithm = "blake3"
    of: Literal["bytes", "pixels"] = "bytes"
    sign: bool = Field(
        default=False,
        description="Return a tag for each item. The query must name one engine.",
    )


class HashQuery(Query):
    """The query of `POST /hash`."""

    dtype: str | None = None
    shape: str | None = None
    engines: EngineNames | None = None


class JsonItem(RequestModel):
    """An item of a JSON body. Its content is in `data`, `url`, `shm` or `cuda_ipc`."""

    kind: Literal["bytes", "tensor", "image"]
    name: Text | None = None
    data: str | None = Field(default=None, description="The content, in base64.")
    url: str | None = Field(default=None, description="A data: or http(s): URL of the content.")
    shm: dict[str, Any] | None = Field(
        default=None,
        description="A handle of mmhash.transport.SharedTensor, on the Unix socket only.",
    )
    cuda_ipc: dict[str, Any] | None = Field(
        default=None, description="A handle of mmhash.transport.IpcTensor, on the Unix socket only."
    )
    dtype: str | None = None
    shape: Annotated[list[Natural], Field(fail_fast=True, max_length=32)] | None = None
    grids: (
        Annotated[
            list[Annotated[list[Natural], Field(fail_fast=True, min_length=2, max_length=3)]],
            Field(fail_fast=True),
        ]
        | None
    ) = Field(
        default=None,
        description="A row for each item of a bundle. The product of a row is the item's length.",
    )
    counts: Annotated[list[Natural], Field(fail_fast=True)] | Natural | None = Field(
        default=None,
        description="The lengths of a bundle's items, or the number of items of length 1.",
    )

    def part_name(self, number: int) -> str | None:
        """Return the name of one item of this bundle."""
        return None if self.name is None else f"{self.name}[{number}]"


class HashBody(RequestModel):
    """The JSON body of `POST /hash`."""

    items: Annotated[list[JsonItem], Field(fail_fast=True, min_length=1)]


class Item(BaseModel):
    """An item: its properties, the digest of its `nbytes` bytes, and its key, both in hex."""

    name: str | None
    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    algorithm: Algorithm
    digest: str
    key: str
    engines: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="For each engine in the query, the request fields that carry the key.",
    )
    exif_orientation: int = Field(
        default=1,
        description="The EXIF orientation of an image hashed by its pixels. The key ignores it; "
        "engines that rotate images have it in their fields.",
    )
    memo: Literal["hit", "miss"] | None = Field(
        default=None, description="Whether the memo had the digest, if it was asked."
    )
    tag: str | None = Field(
        default=None,
        description="Proves to the engine that this service computed the key.",
    )


class HashAnswer(BaseModel):
    """The items of a body in order, and the time that they took."""

    items: list[Item]
    elapsed_ms: float
