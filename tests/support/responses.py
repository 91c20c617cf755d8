"""Reads the items of a response, or its problem."""

import json
from typing import Any

import httpx


def items_of(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the items of a successful response to POST /hash."""
    assert response.status_code == 200, response.text
    assert response.json().keys() == {"items", "elapsed_ms"}
    return response.json()["items"]


def problem_of(response: httpx.Response | bytes) -> tuple[int, str]:
    """Return the status and the name of a problem. The response may be raw bytes."""
    if isinstance(response, bytes):
        head, _, body = response.partition(b"\r\n\r\n")
        status, problem = int(head.split()[1]), json.loads(body)
        assert b"application/problem+json" in head, response
    else:
        status, problem = response.status_code, response.json()
        assert response.headers["content-type"] == "application/problem+json", response.text
    assert problem["status"] == status
    return status, problem["type"].removeprefix("urn:mmhash:problem:")


def refusal_of(response: httpx.Response | bytes) -> str:
    """Return the name of the problem for which the request was refused with a 4xx."""
    status, name = problem_of(response)
    assert 400 <= status < 500, name
    return name
