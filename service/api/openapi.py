"""The page that describes the calls, and the bodies that FastAPI does not see."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from mmhash_service.api.schemas import BlocksBody, HashBody, PadBody

_REF = "#/components/schemas/{model}"
_BODIES: tuple[type[BaseModel], ...] = (HashBody, PadBody, BlocksBody)


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """What the page says of a call whose body is that model as JSON."""
    schema = {"schema": {"$ref": _REF.format(model=model.__name__)}}
    return {"requestBody": {"required": True, "content": {"application/json": schema}}}


def query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """What the page says of a call whose query is that model."""
    whole = model.model_json_schema()
    required = whole.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in whole["properties"].items()
    ]


def describe_bodies(app: FastAPI) -> None:
    """Put the models of bodies on the page."""
    made_by_fastapi = app.openapi

    def openapi() -> dict[str, Any]:
        page = made_by_fastapi()
        models = [(model, "validation") for model in _BODIES]
        _, found = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
        page["components"]["schemas"] |= found["$defs"]
        return page

    app.openapi = openapi  # type: ignore[method-assign]
