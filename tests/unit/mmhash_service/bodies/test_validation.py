"""A refusal of a body or query names the wrong place."""

import json
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from mmhash_service.bodies.json_body import parse_json
from mmhash_service.bodies.parsing import parse_query
from mmhash_service.endpoints.annotate import AnnotateQuery
from mmhash_service.endpoints.blocks import BlocksBody
from mmhash_service.endpoints.pad import PadBody
from mmhash_service.items.schema import HashBody, HashQuery
from mmhash_service.problems.problem import InvalidPart, Problem

PAD = {"engine": "sglang", "input_ids": [1, 2], "spans": []}
SPAN = {"start": 0, "end": 1, "key": "hunter2"}


def parts_of(text: Any, model: Any) -> list[InvalidPart]:
    with pytest.raises(Problem) as refused:
        parse_json(text if isinstance(text, bytes) else json.dumps(text).encode(), model)
    assert refused.value.name == "invalid-json"
    return list(refused.value.parts)


@pytest.mark.parametrize(
    ("body", "model", "pointers"),
    [
        ({**PAD, "input_ids": [1, "hunter2"]}, PadBody, ["/input_ids/1"]),
        ({**PAD, "input_ids": ["hunter2"] * 100_000}, PadBody, ["/input_ids/0"]),
        ({**PAD, "unknown": 1}, PadBody, [""]),
        ({**PAD, "engine": "hunter,2"}, PadBody, ["/engine"]),
        ({**PAD, "spans": [SPAN]}, PadBody, ["/spans/0/key"]),
        ({**PAD, "spans": [SPAN | {"key": "0" * 64, "unknown": 1}]}, PadBody, ["/spans/0"]),
        ({"engine": "sglang"}, PadBody, ["/input_ids", "/spans"]),
        ({"items": [{"kind": "hunter2"}]}, HashBody, ["/items/0/kind"]),
        ({"items": [{"kind": "bytes", "shm": "hunter2"}]}, HashBody, ["/items/0/shm"]),
        ({"items": [{"kind": "bytes", "counts": "hunter2"}]}, HashBody, ["/items/0/counts"] * 2),
        ({"items": []}, HashBody, ["/items"]),
        (b"{hunter2", HashBody, [""]),
        (b"[" * 100_000, HashBody, [""]),
        (["hunter2"], BlocksBody, [""]),
    ],
)
def test_a_body_has_a_pointer(body: Any, model: Any, pointers: list[str]) -> None:
    found = parts_of(body, model)
    assert [part.pointer for part in found] == pointers
    assert all(part.reason for part in found)


@pytest.mark.parametrize(
    ("query", "model", "parameter"),
    [
        ("of=hunter2", HashQuery, "of"),
        ("algorithm=hunter2", HashQuery, "algorithm"),
        ("of=bytes&of=bytes", HashQuery, "of"),
        ("unknown=hunter2", HashQuery, None),
        ("unknown=1&unknown=2", HashQuery, None),
        ("", AnnotateQuery, "engine"),
        ("engine=hunter,2", AnnotateQuery, "engine"),
    ],
)
def test_a_query_names_the_parameter(query: str, model: Any, parameter: str | None) -> None:
    with pytest.raises(Problem) as refused:
        parse_query(QueryParams(query), model)
    (part,) = refused.value.parts
    assert refused.value.name == "invalid-query"
    assert part.parameter == parameter
    assert part.pointer is None


@pytest.mark.parametrize(
    ("name", "meant"), [("engine", "engines"), ("fromat", None), ("x" * 1000, None)]
)
def test_an_unknown_parameter_is_named(name: str, meant: str | None) -> None:
    with pytest.raises(Problem) as refused:
        parse_query(QueryParams({name: "1"}), HashQuery)
    (part,) = refused.value.parts
    assert repr(name[:64]) in part.reason
    assert (meant is not None) == (repr(meant) in part.reason)
