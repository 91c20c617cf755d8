"""Types and fields that several schemas share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from mmhash.requests import PATHS

MAX_MODEL_NAME = 255

Natural = Annotated[int, Field(ge=0, lt=1 << 63)]
Token = Annotated[int, Field(ge=0, lt=1 << 63)]
BlockSize = Annotated[int, Field(ge=1, lt=1 << 24)]
Text = Annotated[str, StringConstraints(max_length=1024)]

_HEX64, _HEX16 = r"^[0-9a-f]{64}$", r"^[0-9a-f]{16}$"
_ONE_ENGINE, _ENGINE_LIST = r"^[^,]+$", r"^[^,]*(,[^,]*){0,15}$"
_PATH = f"^({'|'.join(PATHS)})$"

PATTERNS = {
    _HEX64: "64 hex digits in lower case, as POST /hash returns in key",
    _HEX16: "16 hex digits in lower case, as SGLang names an item",
    _ONE_ENGINE: "one engine, such as sglang@0.5.23",
    _ENGINE_LIST: "at most 16 engines, as in sglang@0.5.23,vllm",
    _PATH: f"one of {', '.join(PATHS)}",
}
"""What each pattern asks for, in errors."""

Hex64 = Annotated[str, StringConstraints(pattern=_HEX64)]
Hex16 = Annotated[str, StringConstraints(pattern=_HEX16)]
EngineName = Annotated[str, StringConstraints(max_length=64, pattern=_ONE_ENGINE)]
# At most 16, because every item is named for each of them.
EngineNames = Annotated[str, StringConstraints(max_length=1024, pattern=_ENGINE_LIST)]


class RequestModel(BaseModel):
    """A model that refuses unknown fields, because a misspelt field would be ignored silently."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


RequestPath = Annotated[
    str | None,
    Field(
        pattern=_PATH,
        description="The path at which an engine receives the request. If absent, a request with "
        "`messages` is a chat, one with `prompt` a completion, one with `input` a Responses "
        "request, and any other one is for `/generate`.",
    ),
]
