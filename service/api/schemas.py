"""Pydantic models of queries, JSON bodies and responses."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from mmhash.digest import Algorithm
from mmhash.engines.registry import ENGINES
from mmhash.engines.releases import Fallback
from mmhash.view import Kind

MAX_MODEL_NAME = 255

Natural = Annotated[int, Field(ge=0, lt=1 << 63)]
Token = Annotated[int, Field(ge=0, lt=1 << 63)]
BlockSize = Annotated[int, Field(ge=1, lt=1 << 24)]
Text = Annotated[str, StringConstraints(max_length=1024)]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex16 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]

# The engines that an endpoint takes are those that can do it.
_WITH_BLOCKS = "|".join(engine.name for engine in ENGINES if engine.blocks)
_WITH_PADS = "|".join(engine.name for engine in ENGINES if engine.pad)
_PLANNED = "vllm|sglang"
_ANNOTATED = "|".join(engine.name for engine in ENGINES if engine.annotate)

_ENGINE = "The engine, and its release if it is not the newest: sglang@0.5.23."
_FALLBACK: Any = Field(
    default=None,
    description="Answer an unknown release by the newest known older one, and name it in `recipe`; "
    "the default is the setting.",
)
_RECIPE: Any = Field(
    default=None,
    description="The release whose recipe was used, if that in the request is unknown.",
)


class _RequestModel(BaseModel):
    """A model that refuses unknown fields: a misspelt one would silently change the result."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class _Query(BaseModel):
    """The query parameters that `/hash` and `/annotate` share."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    algorithm: Algorithm = "blake3"
    of: Literal["bytes", "pixels"] = "bytes"
    sign: bool = Field(
        default=False,
        description="Return a tag for each item, valid for the one engine in the query.",
    )
    engine_fallback: Fallback | None = _FALLBACK


VIDEO_FIELDS = ("fps", "count", "indices", "max_frames", "size")
AUDIO_FIELDS = ("rate", "channels", "start", "stop", "window")


class HashQuery(_Query):
    """The query of `POST /hash`."""

    of: Literal["bytes", "pixels", "frames"] = "bytes"  # type: ignore[assignment]
    dtype: str | None = None
    shape: str | None = None
    engines: Annotated[str, Field(max_length=1024)] | None = None
    by: Literal["source", "frames"] | None = Field(
        default=None,
        description="With of=frames: by the file's bytes (source, the default), or by the decoded "
        "frames, whose keys are then in `frames`.",
    )
    fps: float | None = Field(default=None, description="Frames per second of a video.")
    count: int | None = Field(
        default=None, description="The number of frames, evenly spaced from the first to the last."
    )
    indices: str | None = Field(
        default=None, description="The numbers of frames, from 0, ascending: 0,5,9."
    )
    max_frames: int | None = Field(
        default=None, description="Select this number by `count` if the recipe selects more."
    )
    size: str | None = Field(default=None, description="The size of the frames: 320x240.")
    rate: int | None = Field(default=None, description="Samples per second of an audio clip.")
    channels: int | None = None
    start: float | None = Field(default=None, description="The first second of an audio clip.")
    stop: float | None = None
    window: float | None = Field(default=None, description="The length of a window in seconds.")

    @model_validator(mode="after")
    def _check_recipe(self) -> Self:
        recipe = ("by", *VIDEO_FIELDS, *AUDIO_FIELDS)
        if self.of != "frames" and any(getattr(self, name) is not None for name in recipe):
            raise ValueError("a recipe needs of=frames")
        return self


class PlanQuery(BaseModel):
    """The query of `POST /plan`: how the engine was started, and how items are hashed."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    model: Annotated[str, Field(max_length=MAX_MODEL_NAME)] = Field(
        description="A name of the setting models."
    )
    engine: Annotated[str, Field(max_length=64, pattern=rf"^({_PLANNED})(@.+)?$")] = Field(
        description=_ENGINE
    )
    algorithm: Algorithm = "blake3"
    of: Literal["bytes", "pixels"] = "bytes"
    block_size: BlockSize | None = Field(
        default=None,
        description="The number of tokens that the engine hashes at once: 16 for vLLM and 1 for "
        "SGLang by default.",
    )
    block_algorithm: Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"] | None = Field(
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
    engine_fallback: Fallback | None = _FALLBACK

    def of_items(self) -> HashQuery:
        """Return the equivalent query of `POST /hash`, for the items."""
        return HashQuery(
            algorithm=self.algorithm,
            of=self.of,
            engine_fallback=self.engine_fallback,
            engines=self.engine,
        )

    def plan_options(self) -> dict[str, Any]:
        """Return the options of `Model.plan`."""
        names = ("block_size", "seed", "lora", "lora_path", "lookahead", "model_id")
        options = {name: getattr(self, name) for name in names}
        return options | {"algorithm": self.block_algorithm}


class AnnotateQuery(_Query):
    """The query of `POST /annotate`."""

    engine: Annotated[str, Field(max_length=64, pattern=rf"^({_ANNOTATED})(@.+)?$")] = Field(
        description="The engine that receives the request, and its release if it is not the newest."
    )
    plan: Annotated[str, Field(max_length=MAX_MODEL_NAME)] | None = Field(
        default=None, description="A name of the setting models: return the prompt's plan too."
    )

    def of_items(self) -> HashQuery:
        """Return the equivalent query of `POST /hash`, for the items."""
        return HashQuery(
            algorithm=self.algorithm,
            of=self.of,
            sign=self.sign,
            engine_fallback=self.engine_fallback,
            engines=self.engine,
        )

    def of_plan(self, model: str) -> PlanQuery:
        """Return the query of `POST /plan` for the same request."""
        return PlanQuery(
            model=model,
            engine=self.engine,
            algorithm=self.algorithm,
            of=self.of,
            engine_fallback=self.engine_fallback,
        )


class JsonItem(_RequestModel):
    """One item of a JSON body, with its content in one of `data`, `url`, `shm`, `cuda_ipc`."""

    kind: Literal["bytes", "tensor", "image", "video", "audio"] = Field(
        description="A video or audio is hashed by its frames, and needs of=frames in the query."
    )
    name: Text | None = None
    data: str | None = Field(default=None, description="The content, in base64.")
    url: str | None = Field(
        default=None, description="A data:, http(s): or file: URL of the content."
    )
    shm: dict[str, Any] | None = Field(
        default=None, description="A handle of mmhash.transport.SharedTensor."
    )
    cuda_ipc: dict[str, Any] | None = Field(
        default=None, description="A handle of mmhash.transport.IpcTensor."
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
        description="A row for each item of a bundle: the product of its numbers is its length.",
    )
    counts: Annotated[list[Natural], Field(fail_fast=True)] | Natural | None = Field(
        default=None,
        description="The lengths of a bundle's items, or the number of items of length 1.",
    )

    def part_name(self, number: int) -> str | None:
        """Return the name of one item of this bundle."""
        return None if self.name is None else f"{self.name}[{number}]"


class Proof(_RequestModel):
    """A proof that the caller is on this host: a nonce, and a shared-memory segment with it."""

    nonce: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){16,64}$")]
    shm: dict[str, Any]


class HashBody(_RequestModel):
    """The JSON body of `POST /hash`; `proof` is required for `shm` and `cuda_ipc`."""

    items: Annotated[list[JsonItem], Field(fail_fast=True, min_length=1)]
    proof: Proof | None = None


class Span(_RequestModel):
    """The range of an item's placeholders, without `end`, and its key or hash."""

    start: Natural
    end: Natural
    key: Hex64 | None = Field(default=None, description="The key returned by `POST /hash`.")
    hash: Hex16 | None = Field(default=None, description="The 64-bit hash that SGLang uses.")


class PadBody(_RequestModel):
    """The body of `POST /pad`."""

    engine: Annotated[str, Field(max_length=64, pattern=rf"^({_WITH_PADS})(@.+)?$")] = Field(
        description=_ENGINE
    )
    input_ids: Annotated[list[Token], Field(fail_fast=True)]
    spans: Annotated[list[Span], Field(fail_fast=True)]
    engine_fallback: Fallback | None = _FALLBACK


class Lora(_RequestModel):
    """A LoRA adapter, as the engine has it."""

    name: Text
    path: Text | None = Field(default=None, description="vLLM binds it from 0.31 on.")


class BlocksBody(_RequestModel):
    """The body of `POST /blocks`."""

    engine: Annotated[str, Field(max_length=64, pattern=rf"^({_WITH_BLOCKS})(@.+)?$")] = Field(
        description=_ENGINE
    )
    input_ids: Annotated[list[Token], Field(fail_fast=True)]
    block_size: BlockSize = Field(
        description="The number of tokens that the engine hashes at once."
    )
    spans: Annotated[list[Span], Field(fail_fast=True)] = []
    cache_salt: Text | None = None
    extra_key: Text | None = None
    algorithm: Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"] | None = Field(
        default=None, description="vLLM's --prefix-caching-hash-algo; sha256 by default."
    )
    seed: Text | None = Field(default=None, description="The PYTHONHASHSEED of vLLM.")
    lora: Lora | None = None
    lookahead: Annotated[int, Field(ge=0, le=1024)] | None = Field(
        default=None, description="How many tokens after a block vLLM counts to it."
    )
    groups: Annotated[list[BlockSize], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="The block sizes of a model's KV-cache groups: different multiples of "
        "block_size.",
    )
    engine_fallback: Fallback | None = _FALLBACK


ItemKind = Kind | Literal["video", "audio"]


class Item(BaseModel):
    """One item: its properties, the digest of its `nbytes` bytes, and its key, both in hex."""

    name: str | None
    kind: ItemKind
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
    frames: list[str] | None = Field(
        default=None,
        description="The key of each frame or window, if a clip is hashed by its decoded frames.",
    )
    tag: str | None = Field(
        default=None,
        description="A signature for the engine: it proves that this service computed the key.",
    )


class HashAnswer(BaseModel):
    """The items of one body, in its order, and the time they took."""

    items: list[Item]
    elapsed_ms: float


class PlannedSpan(BaseModel):
    """A range that the engine names by an item's key, as `/blocks` takes it."""

    start: int
    end: int
    key: str


class PlannedPrompt(BaseModel):
    """A prompt as the engine will see it."""

    token_ids: list[int]
    spans: list[PlannedSpan]
    blocks: list[str]
    event_ids: list[int]


class AnnotateAnswer(BaseModel):
    """The request with hashes inserted, and the item of each hash, in the same order."""

    request: dict[str, Any]
    items: list[Item]
    plan: PlannedPrompt | None = Field(
        default=None, description="The prompt's plan, if the query has `plan`."
    )
    recipe: str | None = _RECIPE


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


class PlanAnswer(PlannedPrompt):
    """A prompt as the engine will see it, and the request with the hashes of its items."""

    items: list[PlannedItem]
    request: dict[str, Any]
    recipe: str | None = _RECIPE


class PadAnswer(BaseModel):
    """The token ids with the pad values in each span."""

    input_ids: list[int]
    recipe: str | None = _RECIPE


class BlockList(BaseModel):
    """The key of each block in hex, as the engine's cache has it, and its id in KV events."""

    blocks: list[str]
    event_ids: list[int]


class GroupBlocks(BlockList):
    """The blocks of the KV-cache groups with blocks of this size."""

    block_size: int


class BlocksAnswer(BlockList):
    """The blocks of a prompt."""

    groups: list[GroupBlocks] | None = None
    recipe: str | None = _RECIPE


ClaimKey = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
ClaimAction = Literal["acquire", "wait", "renew", "complete", "fail", "find"]

# The fields of a claim that each action requires, and those that it may have.
_CLAIM_FIELDS: dict[ClaimAction, tuple[set[str], set[str]]] = {
    "acquire": ({"key", "holder"}, {"ttl_s", "wait_s"}),
    "wait": ({"key"}, {"wait_s"}),
    "renew": ({"key", "holder", "fence"}, {"ttl_s"}),
    "complete": ({"key", "holder", "fence", "result"}, {"keep_s"}),
    "fail": ({"key", "holder", "fence"}, set()),
    "find": ({"keys"}, set()),
}


class ClaimBody(_RequestModel):
    """The body of `POST /claim`; docs/claims.md lists the fields of each action."""

    action: ClaimAction
    key: ClaimKey | None = Field(
        default=None, description="The computation that is claimed, such as a model and a key."
    )
    keys: Annotated[list[ClaimKey], Field(min_length=1, max_length=64)] | None = None
    holder: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = Field(
        default=None, description="A random secret of the caller, new for each claim."
    )
    fence: Annotated[int, Field(ge=0, lt=1 << 53)] | None = Field(
        default=None, description="The fence that acquire returned."
    )
    ttl_s: Annotated[float, Field(ge=0.1, le=300)] = Field(
        default=10.0, description="Seconds until the lease ends unless it is renewed."
    )
    wait_s: Annotated[float, Field(ge=0, le=30)] = Field(
        default=0.0, description="Seconds to wait while another holder has the claim."
    )
    keep_s: Annotated[float, Field(ge=1, le=86_400)] = Field(
        default=600.0, description="Seconds that the result is kept for."
    )
    result: dict[str, Any] | None = Field(
        default=None, description="The result or its place, at most 16 KiB of JSON."
    )

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        required, optional = _CLAIM_FIELDS[self.action]
        given = {
            name for name in self.model_fields_set - {"action"} if getattr(self, name) is not None
        }
        if not required <= given <= required | optional:
            raise ValueError("the action has other fields")
        return self


class ClaimAnswer(BaseModel):
    """The state of a claim after an action."""

    state: Literal["held", "busy", "done", "free"]
    fence: int = Field(description="It is larger for each later holder of the claim.")
    remaining_ms: int | None = Field(
        default=None, description="The time until the lease or the result ends."
    )
    result: dict[str, Any] | None = Field(default=None, description="Only if it is done.")


class FoundClaims(BaseModel):
    """The answer to `find`: the state of each claim, in the order of the keys."""

    claims: list[ClaimAnswer]


class Health(BaseModel):
    """The answer of a probe."""

    status: Literal["ok"]


class Version(BaseModel):
    """The versions of mmhash, of the spec of its keys, and of Python."""

    mmhash: str
    spec: int
    python: str


class Info(BaseModel):
    """The capabilities and limits of the service."""

    algorithms: list[str]
    spec: int
    limits: dict[str, int | float]
    devices: list[str]
    engines: dict[str, list[str]]
    in_place: list[str]
    models: list[str] = Field(description="The models that /plan knows.")
    memo: str = Field(description="The store of the memo: the scheme of its URL, or memory.")


class ProblemError(BaseModel):
    """An invalid part of a request."""

    pointer: str | None = Field(
        default=None, description="The place in the JSON body, as a JSON pointer (RFC 6901)."
    )
    parameter: str | None = Field(default=None, description="The parameter of the query.")
    reason: str


class ProblemAnswer(BaseModel):
    """A problem: the reason why a request failed (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemError] | None = Field(
        default=None, description="The invalid parts of the body or the query."
    )


class PlanSize(BaseModel):
    """The size of a prompt as its engine will have it."""

    tokens: int
    blocks: int


class RoutedWorker(BaseModel):
    """A worker, as the policy sees it for one request."""

    url: str
    matched_tokens: int = Field(description="The tokens of the prompt's prefix that it has cached.")
    expected_tokens: int | None = Field(
        default=None,
        description="The tokens after them that it computes for requests that run; only if any.",
    )
    load: float = Field(description="The tokens that it has to compute for other requests.")
    score: float


class RouteAnswer(BaseModel):
    """The answer of `POST /route`."""

    request: dict[str, Any] = Field(description="The request with the hashes of its media.")
    plan: PlanSize | None = Field(description="Null if the prompt cannot be planned.")
    workers: list[RoutedWorker] = Field(description="All workers, the best one first.")


class WorkerState(BaseModel):
    """A worker as the gateway knows it."""

    url: str
    engine: str | None
    healthy: bool
    requests: int = Field(description="The requests that this process has sent and that run.")
    load: float = Field(description="The tokens that it has to compute, by estimate.")
    connected: bool = Field(description="Its KV events are received.")
    blocks: int = Field(description="The blocks that it has cached, by its KV events.")
    block_size: int = Field(
        description="The tokens of a block, by its KV events; 0 before the first."
    )
    expected_blocks: int = Field(
        description="The blocks that it did not have cached when requests with them were sent to "
        "it, until a second after these end. They are not in `blocks`."
    )
    events: int = Field(description="The KV events received.")
    gaps: int = Field(description="The gaps in the numbers of its batches of events.")
    replays: int = Field(description="The replays that were asked for.")
    drops: int = Field(description="How often its blocks were dropped, because events were lost.")
    lag_s: float = Field(description="Seconds from an event's own time to its arrival.")


class WorkersAnswer(BaseModel):
    """The answer of `GET /workers`."""

    policy: str
    workers: list[WorkerState]
