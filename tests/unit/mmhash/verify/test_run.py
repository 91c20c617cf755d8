"""Servers whose answers are not those of an engine."""

import pytest

from mmhash.errors import InputValueError, ServiceError
from mmhash.verify import verify_engine
from tests.support.scripted import ScriptedServer


@pytest.mark.parametrize(
    "body",
    [b"[]", b"<html>", b"[" * 100_000, b"\xff", b'{"version":' + b"9" * 5000 + b"}", b"{}"],
    ids=["a list", "no JSON", "deep", "no UTF-8", "a long number", "no release"],
)
def test_a_malformed_answer_is_a_named_error(body: bytes) -> None:
    with (
        ScriptedServer((200, {"content-type": "application/json"}, body)) as engine,
        pytest.raises(ServiceError, match=r"no JSON|no release"),
    ):
        verify_engine(engine.url, events="tcp://127.0.0.1:1")


def test_an_api_key_that_is_no_header_is_refused() -> None:
    with pytest.raises(InputValueError, match="api_key must not have control characters"):
        verify_engine("http://127.0.0.1:1", events="tcp://127.0.0.1:1", api_key="a\r\nb: c")
