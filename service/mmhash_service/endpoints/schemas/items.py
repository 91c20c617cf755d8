"""The items of a response, and the response of `POST /hash`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from mmhash.digest import Algorithm
from mmhash.view import Kind


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
        description="The fields that each engine in the query takes for the key.",
    )
    exif_orientation: int = Field(
        default=1,
        description="The orientation of an image by its pixels, which its key does not cover, and "
        "the fields of engines that apply it do.",
    )
    memo: Literal["hit", "miss"] | None = Field(
        default=None, description="The result of the memo lookup, if there was one."
    )
    tag: str | None = Field(
        default=None,
        description="A signature for the engine: it proves that this service computed the key.",
    )


class HashAnswer(BaseModel):
    """The items of one body in order, and the time they took."""

    items: list[Item]
    elapsed_ms: float
