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
    matched_tokens: int = Field(description="The tokens of the prompt's prefix that it has cached.")
    expected_tokens: int | None = Field(
        default=None,
        description="The tokens after them that it is expected to hold: it computes them for"
        " requests that run, or was sent them and cannot name them in events. Only if any.",
    )
    load: float = Field(description="The tokens that it has to compute for other requests.")
    score: float


class RouteAnswer(BaseModel):
    """The response of `POST /route`."""

    request: dict[str, Any] = Field(description="The request with the hashes of its media.")
    plan: PlanSize | None = Field(description="Null if the prompt cannot be planned.")
    workers: list[RoutedWorker] = Field(
        description="The workers that may get it, the best one first."
    )


class WorkerState(BaseModel):
    """A worker as the gateway knows it."""

    url: str
    engine: str | None = Field(description="The engine and release that it is planned for.")
    lacking: dict[str, str] = Field(
        description="What neither the settings nor its server say: the member of a worker that "
        "says it, and why the server does not."
    )
    release: str | None = Field(description="The engine and release that its server reports.")
    names: Literal["unknown", "right", "wrong"] = Field(
        description="Whether its KV events list the blocks that are planned for it. `wrong` means "
        "that no lookup finds anything: the log says why."
    )
    plugin: list[str] | None = Field(
        description="What mmhash's plugin does in this SGLang: `keys` name its media, `guard` and "
        "`features`. Null without the plugin."
    )
    healthy: bool
    models: list[str] = Field(
        description="The models that it lists at /v1/models; empty if that is not known."
    )
    mismatched: bool = Field(
        description="It lists models, none of which another worker lists: it gets requests for "
        "its own models only."
    )
    requests: int = Field(description="The requests that this process has sent and that run.")
    load: float = Field(description="The tokens that it has to compute, by estimate.")
    last_how: str | None = Field(
        description="How the last prompt that this process sent to it was routed: `planned`, or "
        "why it had no plan."
    )
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
    """The response of `GET /workers`."""

    policy: str
    workers: list[WorkerState]
