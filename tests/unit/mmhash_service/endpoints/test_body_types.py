"""The body type of a request, by its Content-Type."""

import httpx
import pytest

from mmhash_service.endpoints.body_types import BODY_TYPES, find_body_type
from mmhash_service.problems.problem import Problem
from tests.support.responses import items_of, problem_of


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


@pytest.mark.parametrize(
    ("content_type", "of"),
    [("image/png", "bytes"), ("image/png", "pixels"), ("video/mp4", "bytes")],
)
def test_an_empty_image_or_clip_is_refused(
    client: httpx.Client, content_type: str, of: str
) -> None:
    answer = client.post("/hash", headers={"Content-Type": content_type}, params={"of": of})
    assert problem_of(answer) == (422, "damaged-media")
    files = {"a": ("a", b"abc", content_type), "b": ("b", b"", content_type)}
    if of == "bytes":
        assert problem_of(client.post("/hash", files=files)) == (422, "damaged-media")


def test_an_empty_body_of_bytes_has_a_key(client: httpx.Client) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    (item,) = items_of(client.post("/hash", headers=headers))
    assert item["nbytes"] == 0
