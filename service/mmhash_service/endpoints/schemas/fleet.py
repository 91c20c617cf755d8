"""`POST /route` and `GET /workers` of the gateway."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mmhash_service.bodies.types import RequestPath


class RouteQuery(BaseModel):
    """The query of `POST /route`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    path: RequestPath = None


class PlanSize(BaseModel):
    """The size of a prompt as its engine will see it."""

    tokens: int
    blocks: int


class RoutedWorker(BaseModel):
    """A worker as the policy sees it for one request."""

    url: str
    matched_tokens: int = Field(
        description="How many leading tokens of the prompt the worker has cached."
    )
    expected_tokens: int | None = Field(
        default=None,
        description="How many further tokens the worker is expected to hold, because"
        " running requests need them or because events cannot name them. Absent if none.",
    )
    load: float = Field(description="The tokens that the worker must compute for other requests.")
    score: float


class RouteAnswer(BaseModel):
    """The response of `POST /route`."""

    request: dict[str, Any] = Field(description="The request with the hashes of its media.")
    plan: PlanSize | None = Field(description="Null if the prompt cannot be planned.")
    workers: list[RoutedWorker] = Field(
        description="The workers that may get the request, best first."
    )


class WorkerState(BaseModel):
    """A worker as the gateway knows it."""

    url: str
    engine: str | None = Field(description="The engine and release that requests are planned for.")
    lacking: dict[str, str] = Field(
        description="What neither the settings nor the server says: the member of the worker "
        "setting to give, and why the server does not say it."
    )
    release: str | None = Field(description="The engine and release that the server reports.")
    names: Literal["unknown", "right", "wrong"] = Field(
        description="Whether the KV events list the blocks that are planned for this worker. "
        "`wrong` means that no lookup finds anything: the log says why."
    )
    plugin: list[str] | None = Field(
        description="What mmhash's plugin does in this SGLang: `keys` name its media, `guard`, "
        "`features`, and `tenants` if it has their secrets. Null without the plugin."
    )
    healthy: bool
    models: list[str] = Field(description="The models listed at /v1/models; empty if unknown.")
    mismatched: bool = Field(
        description="True if the worker shares no model with any other worker, and so only "
        "gets requests for its own models."
    )
    requests: int = Field(description="The running requests that this process has sent.")
    load: float = Field(description="The tokens that the worker must compute, by estimate.")
    last_how: str | None = Field(
        description="How this process routed its last prompt to the worker: `planned`, or why the "
        "prompt had no plan."
    )
    connected: bool = Field(description="True if KV events are being received.")
    blocks: int = Field(description="The cached blocks, by the KV events.")
    block_size: int = Field(
        description="The tokens per block, by the KV events; 0 before the first event."
    )
    expected_blocks: int = Field(
        description="Blocks of requests sent to the worker that were not cached there, until a "
        "second after these requests end. `blocks` does not include them."
    )
    events: int = Field(description="The KV events received.")
    gaps: int = Field(description="The gaps in the numbers of event batches.")
    replays: int = Field(description="The replays requested.")
    drops: int = Field(description="How often all blocks were dropped because events were lost.")
    lag_s: float = Field(description="Seconds from an event's own time to its arrival.")


class WorkersAnswer(BaseModel):
    """The response of `GET /workers`."""

    policy: str
    workers: list[WorkerState]
