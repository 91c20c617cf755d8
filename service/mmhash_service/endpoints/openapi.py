"""OpenAPI descriptions: problems, and the queries and bodies that handlers parse themselves."""

from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

_REF = "#/components/schemas/{model}"

# The models that `json_schema` has referred to.
_bodies: list[type[BaseModel]] = []


class ProblemError(BaseModel):
    """An invalid part of a request."""

    pointer: str | None = Field(
        default=None, description="The place in the JSON body, as a JSON pointer (RFC 6901)."
    )
    parameter: str | None = Field(default=None, description="The parameter of the query.")
    part: str | None = Field(default=None, description="The name of the part of a form.")
    reason: str


class OpenAIError(BaseModel):
    """The problem in the form that OpenAI's clients read."""

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
        default=None, description="What was sent and what is expected, for every invalid part."
    )
    error: OpenAIError
    errors: list[ProblemError] | None = Field(
        default=None, description="The invalid parts of the body, the query or the form."
    )


def json_schema(model: type[BaseModel]) -> dict[str, str]:
    """Return a reference to the model's schema, which `describe_bodies` adds to the document."""
    _bodies.append(model)
    return {"$ref": _REF.format(model=model.__name__)}


def json_body(
    model: type[BaseModel] | None, examples: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the OpenAPI of a request with this model as its JSON body, or any object if None."""
    content: dict[str, Any] = {
        "schema": {"type": "object"} if model is None else json_schema(model)
    }
    if examples is not None:
        content["examples"] = examples
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the OpenAPI parameters of a query with the model's fields."""
    model_schema = model.model_json_schema()
    required = model_schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in model_schema["properties"].items()
    ]


def describe_bodies(app: FastAPI) -> None:
    """Add the bodies' schemas to the OpenAPI document of `app`."""
    default_openapi = app.openapi

    def openapi() -> dict[str, Any]:
        document = default_openapi()
        models = [(model, "validation") for model in _bodies]
        _, schemas = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
        document["components"]["schemas"] |= schemas["$defs"]
        return document

    app.openapi = openapi  # type: ignore[method-assign]
