"""The table of body types, in the docs and in OpenAPI."""

from pathlib import Path

import pytest

from mmhash_service.api.problems import Problem
from mmhash_service.app import create_app
from mmhash_service.routes.body_types import BODY_TYPES, find_body_type

PAGE = (Path(__file__).parents[4] / "docs" / "http.md").read_text()


@pytest.mark.parametrize("name", BODY_TYPES)
def test_the_page_names_each_type(name: str) -> None:
    table = PAGE.partition("| Content-Type |")[2].partition("\n\n")[0]
    assert name.replace("*", r"\*") in table


def test_openapi_has_each_type() -> None:
    operation = create_app().openapi()["paths"]["/hash"]["post"]
    assert operation["requestBody"]["content"].keys() == BODY_TYPES.keys()


@pytest.mark.parametrize(
    ("content_type", "name"),
    [
        ("application/json", "application/json"),
        ("Image/PNG; q=1", "image/*"),
        ("multipart/form-data; boundary=b", "multipart/form-data"),
    ],
)
def test_a_type_is_found_by_its_name_or_its_main_type(content_type: str, name: str) -> None:
    assert find_body_type(content_type) is BODY_TYPES[name]


@pytest.mark.parametrize("content_type", ["", "image/*", "text/plain", "application/xml"])
def test_another_type_is_refused(content_type: str) -> None:
    with pytest.raises(Problem, match="unsupported-media-type"):
        find_body_type(content_type)
