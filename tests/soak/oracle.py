"""The expected responses, computed by the library, and the comparable part of the actual ones."""

from typing import Any

import httpx

import mmhash
from mmhash.digest import Algorithm
from mmhash.view import view_of


def item(
    content: Any,
    *,
    name: str | None = None,
    algorithm: Algorithm = "blake3",
    tenant: bytes | None = None,
) -> dict[str, Any]:
    """An item of an answer, as the service must tell it."""
    view = view_of(content)
    return {
        "name": name,
        "kind": view.kind,
        "dtype": view.dtype,
        "shape": list(view.shape),
        "nbytes": len(view.on_host()),
        "algorithm": algorithm,
        "digest": mmhash.digest(content, algorithm=algorithm).hex(),
        "key": mmhash.key(content, algorithm=algorithm, tenant=tenant).hex(),
    }


def answer_of(response: httpx.Response) -> Any:
    """Return the part of a response that is the same each time: of a problem, its name."""
    answer = response.json()
    if not response.is_success:
        return answer["type"].removeprefix("urn:mmhash:problem:")
    answer.pop("elapsed_ms", None)
    for one in answer.get("items", ()):
        one.pop("memo", None)
    return answer
