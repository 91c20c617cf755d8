"""`POST /claim`: its body, and the states of claims."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from mmhash_service.api.schemas.types import SCHEMA_ERROR, RequestModel

ClaimKey = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
ClaimAction = Literal["acquire", "wait", "renew", "complete", "fail", "find"]

# The fields of a claim that each action requires, and those that it may have.
_CLAIM_FIELDS: dict[ClaimAction, tuple[list[str], list[str]]] = {
    "acquire": (["key", "holder"], ["ttl_s", "wait_s"]),
    "wait": (["key"], ["wait_s"]),
    "renew": (["key", "holder", "fence"], ["ttl_s"]),
    "complete": (["key", "holder", "fence", "result"], ["keep_s"]),
    "fail": (["key", "holder", "fence"], []),
    "find": (["keys"], []),
}


class ClaimBody(RequestModel):
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
        if not {*required} <= given <= {*required, *optional}:
            names = [*required, *(f"[{name}]" for name in optional)]
            raise PydanticCustomError(SCHEMA_ERROR, f"{self.action} takes {', '.join(names)}")
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
