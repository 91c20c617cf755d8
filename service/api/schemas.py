"""What a query or a JSON body may ask and what an answer says, as pydantic models."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from mmhash.digest import Algorithm
from mmhash.engines.registry import ENGINES
from mmhash.view import Kind

Natural = Annotated[int, Field(ge=0, lt=1 << 63)]
Token = Annotated[int, Field(ge=0, lt=1 << 63)]
Text = Annotated[str, StringConstraints(max_length=1024)]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex16 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]

# The engines that an endpoint takes are those that can do it.
if TYPE_CHECKING:
    EngineWithBlocks = str
    EngineWithPads = str
else:
    EngineWithBlocks = Literal[tuple(engine.name for engine in ENGINES if engine.blocks)]
    EngineWithPads = Literal[tuple(engine.name for engine in ENGINES if engine.pad)]
_ANNOTATED = "|".join(engine.name for engine in ENGINES if engine.annotate)


class _Asked(BaseModel):
    """An unknown name is refused: misspelt, it would change the answer without a word."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class _Query(BaseModel):
    """What the query of a call that hashes may say."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    algorithm: Algorithm = "blake3"
    of: Literal["bytes", "pixels"] = "bytes"
    sign: bool = Field(
        default=False, description="Whether each item gets a tag for the one engine that is named."
    )


class HashQuery(_Query):
    """The query of `POST /hash`."""

    dtype: str | None = None
    shape: str | None = None
    engines: Annotated[str, Field(max_length=1024)] | None = None


class AnnotateQuery(_Query):
    """The query of `POST /annotate`."""

    engine: Annotated[str, Field(max_length=64, pattern=rf"^({_ANNOTATED})(@.+)?$")] = Field(
        description="The engine that the request goes to, and its release if not the newest."
    )

    def of_items(self) -> HashQuery:
        """The same, as what `POST /hash` would be asked for the items."""
        return HashQuery(algorithm=self.algorithm, of=self.of, sign=self.sign, engines=self.engine)


class JsonItem(_Asked):
    """One item of a JSON body; one of `data`, `url`, `shm` and `cuda_ipc` has its bytes."""

    kind: Literal["bytes", "tensor", "image"]
    name: Text | None = None
    data: str | None = Field(default=None, description="The bytes, in base64.")
    url: str | None = Field(
        default=None, description="A data: URL with the bytes, or an http(s): or file: URL of them."
    )
    shm: dict[str, Any] | None = Field(
        default=None, description="A handle of mmhash.transport.SharedTensor."
    )
    cuda_ipc: dict[str, Any] | None = Field(
        default=None, description="A handle of mmhash.transport.IpcTensor."
    )
    dtype: str | None = None
    shape: Annotated[list[Natural], Field(max_length=32)] | None = None
    grids: list[Annotated[list[Natural], Field(min_length=2, max_length=3)]] | None = Field(
        default=None, description="A row an item of a bundle: their product is its length."
    )
    counts: list[Natural] | Natural | None = Field(
        default=None,
        description="The lengths of a bundle's items, or how many of length 1 there are.",
    )

    def part_name(self, number: int) -> str | None:
        """What an item of this bundle is called."""
        return None if self.name is None else f"{self.name}[{number}]"


class Proof(_Asked):
    """That the caller shares the host: a nonce, and the shared memory into which he laid it."""

    nonce: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){16,64}$")]
    shm: dict[str, Any]


class HashBody(_Asked):
    """The JSON body of `POST /hash`; `proof` comes with items that lie in place."""

    items: Annotated[list[JsonItem], Field(min_length=1)]
    proof: Proof | None = None


class Span(_Asked):
    """Where an item's placeholders are, `end` excluded, and what the item is."""

    start: Natural
    end: Natural
    key: Hex64 | None = Field(default=None, description="The key that `POST /hash` gave.")
    hash: Hex16 | None = Field(default=None, description="The 64-bit hash that SGLang goes by.")


class PadBody(_Asked):
    """The body of `POST /pad`."""

    engine: EngineWithPads
    version: Text | None = None
    input_ids: list[Token]
    spans: list[Span]


class BlocksBody(_Asked):
    """The body of `POST /blocks`."""

    engine: EngineWithBlocks
    version: Text | None = None
    input_ids: list[Token]
    block_size: Annotated[int, Field(ge=1, lt=1 << 31)]
    spans: list[Span] = []
    cache_salt: Text | None = None
    extra_key: Text | None = None


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
    engines: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="The key as each engine that was asked for wants it."
    )
    memo: Literal["hit", "miss"] | None = Field(
        default=None, description="Whether the memo knew the item, if it was asked."
    )
    tag: str | None = Field(
        default=None, description="That this service gave the key, signed for the engine."
    )


class HashAnswer(BaseModel):
    """The items of one body, in its order, and how long they took."""

    items: list[Item]
    elapsed_ms: float


class AnnotateAnswer(BaseModel):
    """The request with hashes put in, and the item of each hash, in their order."""

    request: dict[str, Any]
    items: list[Item]


class PadAnswer(BaseModel):
    """The ids with the pad values in each span."""

    input_ids: list[int]


class BlocksAnswer(BaseModel):
    """The key of each block, as hex."""

    blocks: list[str]


class Health(BaseModel):
    """That the process answers."""

    status: Literal["ok"]


class Version(BaseModel):
    """What is running: the package, the spec of its keys, and Python."""

    mmhash: str
    spec: int
    python: str


class Info(BaseModel):
    """What the service can do, and how far it goes."""

    algorithms: list[str]
    spec: int
    limits: dict[str, int | float]
    devices: list[str]
    engines: dict[str, list[str]]
    in_place: list[str]
    memo: str = Field(description="Where the memo is kept: the scheme of its URL, or memory.")


class ProblemAnswer(BaseModel):
    """Why a call failed (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
