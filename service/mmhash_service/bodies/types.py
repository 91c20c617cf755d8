"""Types and fields that several schemas share."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from mmhash.requests import PATHS

MAX_MODEL_NAME = 255

Natural = Annotated[int, Field(ge=0, lt=1 << 63)]
Token = Annotated[int, Field(ge=0, lt=1 << 63)]
BlockSize = Annotated[int, Field(ge=1, lt=1 << 24)]
Text = Annotated[str, StringConstraints(max_length=1024)]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex16 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]

RECIPE: Any = Field(
    default=None,
    description="The release whose recipe was used because the requested release is unknown: the "
    "setting engine_fallback is on.",
)


class RequestModel(BaseModel):
    """A model that refuses unknown fields: a misspelt field would silently change the result."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


RequestPath = Annotated[
    str | None,
    Field(
        pattern=f"^({'|'.join(PATHS)})$",
        description="The path that the request is for, which says how an engine reads it. Without "
        "it, a request with `messages` is a chat, one with `prompt` a completion, one with `input` "
        "a Responses request, any other native.",
    ),
]
