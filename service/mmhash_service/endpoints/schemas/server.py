"""The state of the server, and its problems."""

from typing import Literal

from pydantic import BaseModel, Field


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
    part: str | None = Field(default=None, description="The name of the part of a form.")
    reason: str


class OpenAIError(BaseModel):
    """The same problem in the form that OpenAI's clients read."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    code: str


class ProblemAnswer(BaseModel):
    """A problem: why a request failed (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    reason: str | None = Field(
        default=None, description="What was sent and what is expected, in all of the places."
    )
    error: OpenAIError
    errors: list[ProblemError] | None = Field(
        default=None, description="The invalid parts of the body or the query."
    )
