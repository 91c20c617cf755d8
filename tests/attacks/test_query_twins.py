"""A name that stands twice in the query, of which a gateway believes the first and the service the last.

No name stands twice: such a call is refused, and so is one of two tenants.
"""

from typing import Any

import pytest

from tests.support.responses import refusal_of


@pytest.mark.parametrize(
    "query",
    [
        "algorithm=blake3&algorithm=xxh3",
        "algorithm=blake3&algorithm=blake3",
        "dtype=uint8&shape=3&shape=1,3",
        "of=bytes&o%66=pixels",
        "engines=vllm&engines=sglang",
    ],
)
def test_it_is_refused(server: Any, query: str) -> None:
    headers = {"content-type": "application/octet-stream"}
    answer = server.client.post(f"/hash?{query}", content=b"abc", headers=headers)
    assert refusal_of(answer) == "invalid-query"


@pytest.mark.parametrize(
    "query",
    ["Algorithm=xxh3", "algorithm=", "algorithm=sha256", "tenant=acme", "shape[]=1", "%00=1"],
)
def test_a_name_or_value_that_is_not_known_is_refused(server: Any, query: str) -> None:
    headers = {"content-type": "application/octet-stream"}
    answer = server.client.post(f"/hash?{query}", content=b"abc", headers=headers)
    assert refusal_of(answer) == "invalid-query"


def test_of_an_annotation_too(server: Any) -> None:
    answer = server.client.post("/annotate?engine=vllm&engine=sglang", json={"messages": []})
    assert refusal_of(answer) == "invalid-query"
