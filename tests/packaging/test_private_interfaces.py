"""Private interfaces of uvicorn that the service uses.

pyproject.toml has an upper bound for each package. When a test here fails after an update, read the
code that uses the interface before raising the bound.
"""

import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
REQUIREMENTS = [
    Requirement(text) for text in PYPROJECT["project"]["optional-dependencies"]["service"]
]


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def assigned(owner: type) -> set[str]:
    """Return the attributes that `__init__` sets."""
    return set(re.findall(r"self\.(\w+)\b[^=\n]*=", inspect.getsource(owner.__init__)))  # type: ignore[misc]


@pytest.mark.parametrize("name", ["uvicorn"])
def test_a_package_with_private_interfaces_has_an_upper_bound(name: str) -> None:
    (specifier,) = (each.specifier for each in REQUIREMENTS if each.name == name)
    assert any(each.operator == "<" for each in specifier)
    assert version(name) in specifier


def test_the_protocol_of_uvicorn_has_the_methods_that_ours_overrides() -> None:
    assert {
        name: parameters(getattr(HttpToolsProtocol, name))[1:]
        for name in (
            *("connection_made", "connection_lost", "data_received", "send_400_response"),
            *("on_message_begin", "on_header", "on_headers_complete", "on_body"),
            *("on_message_complete", "_start_asgi_task", "_unset_keepalive_if_required"),
        )
    } == {
        "connection_made": ["transport"],
        "connection_lost": ["exc"],
        "data_received": ["data"],
        "send_400_response": ["msg"],
        "on_message_begin": [],
        "on_header": ["name", "value"],
        "on_headers_complete": [],
        "on_body": ["body"],
        "on_message_complete": [],
        "_start_asgi_task": ["cycle", "app"],
        "_unset_keepalive_if_required": [],
    }


def test_the_protocol_of_uvicorn_has_the_attributes_that_ours_reads() -> None:
    assert assigned(HttpToolsProtocol) >= {
        *("connections", "cycle", "expect_100_continue", "headers", "loop", "parser", "pipeline"),
        "transport",
    }
    assert "self.url = " in inspect.getsource(HttpToolsProtocol.on_message_begin)
    assert assigned(RequestResponseCycle) >= {
        *("chunked_encoding", "disconnected", "expected_content_length", "keep_alive"),
        "response_complete",
    }


def test_the_server_of_uvicorn_has_the_hooks_that_ours_overrides() -> None:
    assert parameters(uvicorn.Server.handle_exit) == ["self", "sig", "frame"]
    assert parameters(uvicorn.Server.on_tick) == ["self", "counter"]
    assert parameters(uvicorn.Server.startup) == ["self", "sockets"]
    assert assigned(uvicorn.Server) >= {"_captured_signals", "should_exit"}
