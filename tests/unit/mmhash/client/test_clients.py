"""Both clients have the same methods, and name the extra that they need."""

import inspect
import pydoc
import re
from typing import Any

import pytest

import mmhash
from mmhash.client import AsyncClient, Client


def test_both_clients_have_the_same_calls() -> None:
    for name, call in vars(Client).items():
        if not name.startswith("_"):
            other = getattr(AsyncClient, "aclose" if name == "close" else name)
            assert inspect.signature(call) == inspect.signature(other)
            assert inspect.iscoroutinefunction(other)
            assert call.__doc__ == other.__doc__


def test_both_are_there_when_asked_for() -> None:
    assert mmhash.Client is Client
    assert mmhash.AsyncClient is AsyncClient


@pytest.mark.parametrize("kind", [mmhash.Client, mmhash.AsyncClient])
def test_signatures_and_help(kind: Any) -> None:
    for name in ("hash", "annotate", "plan", "pad", "blocks", "info", "health", "ready"):
        method = getattr(kind, name)
        described = inspect.signature(method)
        assert next(iter(described.parameters)) == "self"
        assert "Call" not in str(described)
    assert inspect.signature(kind.health).return_annotation is bool
    client = kind()
    assert next(iter(inspect.signature(client.hash).parameters)) == "items"
    text = pydoc.render_doc(kind.hash, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    assert re.search(r"\(\s*self,\s*items", text)
    assert "-> list[mmhash.client.results.Item]" in text
    assert "Args:" in text


def test_a_closed_client_has_its_own_error() -> None:
    client = mmhash.Client()
    client.close()
    client.close()
    for call in (client.info, client.health, client.ready, lambda: client.hash(b"abc")):
        with pytest.raises(mmhash.ClosedError, match="this Client is closed"):
            call()


@pytest.mark.parametrize("url", ["localhost:8780", "127.0.0.1:8780", "example.org", "//x", ""])
def test_an_address_without_a_scheme(url: str) -> None:
    with pytest.raises(mmhash.InputValueError, match=r"http://127\.0\.0\.1:8780"):
        mmhash.Client(url)
