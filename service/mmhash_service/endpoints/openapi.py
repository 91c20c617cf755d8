"""OpenAPI descriptions of the queries and bodies that handlers parse themselves."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from mmhash_service.endpoints.schemas.prompts import BlocksBody, PadBody
from mmhash_service.items.schema import HashBody

_REF = "#/components/schemas/{model}"
_BODIES: tuple[type[BaseModel], ...] = (HashBody, PadBody, BlocksBody)


def json_schema(model: type[BaseModel]) -> dict[str, str]:
    """Return a reference to the schema of the model."""
    return {"$ref": _REF.format(model=model.__name__)}


def json_body(
    model: type[BaseModel] | None, examples: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the OpenAPI of a request whose body is the model as JSON; None means any object."""
    content: dict[str, Any] = {
        "schema": {"type": "object"} if model is None else json_schema(model)
    }
    if examples is not None:
        content["examples"] = examples
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the OpenAPI parameters for a query with the fields of the model."""
    model_schema = model.model_json_schema()
    required = model_schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in model_schema["properties"].items()
    ]


def describe_bodies(app: FastAPI) -> None:
    """Add the schemas of the bodies to the OpenAPI document of `app`."""
    default_openapi = app.openapi

    def openapi() -> dict[str, Any]:
        document = default_openapi()
        models = [(model, "validation") for model in _BODIES]
        _, schemas = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
        document["components"]["schemas"] |= schemas["$defs"]
        return document

    app.openapi = openapi  # type: ignore[method-assign]
