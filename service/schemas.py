"""What a query may ask and what an answer says, as pydantic models."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from mmhash.digest import Algorithm
from mmhash.view import Kind


class HashQuery(BaseModel):
    """The query of `POST /hash`. An unknown name is refused: misspelt, it would change the key."""

    model_config = ConfigDict(extra="forbid")

    algorithm: Algorithm = "blake3"
    dtype: str | None = None
    shape: str | None = None
    of: Literal["bytes", "pixels"] = "bytes"


class Item(BaseModel):
    """One item: what it is, the digest of its `nbytes` bytes, and its key, both as hex."""

    name: str | None
    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    algorithm: Algorithm
    digest: str
    key: str


class HashAnswer(BaseModel):
    """The items of one body, in its order, and how long they took."""

    items: list[Item]
    elapsed_ms: float


class Health(BaseModel):
    """That the process answers."""

    status: Literal["ok"]


class Version(BaseModel):
    """What is running: the package, the spec of its keys, and Python."""

    mmhash: str
    spec: int
    python: str


class ProblemAnswer(BaseModel):
    """Why a call failed (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
