"""A caller who guesses a tenant's name, or computes a tenant's keys without its secret.

The name alone says whose keys are meant; of keys, 32 secret bytes decide, which no answer tells.
"""

from typing import Any

import pytest

import mmhash
from tests.support.responses import refusal_of

BODY = b"a picture that many have"
RAW = {"content-type": "application/octet-stream"}


def key_of(server: Any, tenant: str | None) -> str:
    headers = RAW if tenant is None else {**RAW, "x-mmhash-tenant": tenant}
    answer = server.client.post("/hash", content=BODY, headers=headers)
    assert answer.status_code == 200
    key: str = answer.json()["items"][0]["key"]
    return key


@pytest.mark.parametrize(
    "name", ["Acme", "acme ", "acme,umbrella", "acm", "*", "", "..", "a" * 60_000, "__class__", "0"]
)
def test_a_name_that_is_not_known_is_refused(server: Any, name: str) -> None:
    # Sent by hand: a client would trim the blank, as HTTP has it.
    head = f"POST /hash HTTP/1.1\r\nContent-Type: image/png\r\nX-Mmhash-Tenant: {name}x\r\n"
    answer = server.send_raw(head.encode() + b"Connection: close\r\nContent-Length: 0\r\n\r\n")
    assert refusal_of(answer) == "unknown-tenant"


def test_keys_of_two_tenants_never_meet(server: Any) -> None:
    keys = {key_of(server, None), key_of(server, "acme"), key_of(server, "umbrella")}
    assert len(keys) == 3


def test_without_the_secret_a_key_is_not_to_be_computed(server: Any) -> None:
    key = key_of(server, "acme")
    assert key == mmhash.key(BODY, tenant=b"\x11" * 32).hex()
    for guess in (bytes(32), b"acme".ljust(32, b"\0"), b"\x11" * 31 + b"\x10"):
        assert key != mmhash.key(BODY, tenant=guess).hex()


def test_no_answer_and_no_log_has_a_secret(server: Any) -> None:
    key_of(server, "acme")
    texts = [server.client.get(path).text for path in ("/info", "/metrics", "/openapi.json")]
    for text in [*texts, *server.log]:
        assert "11" * 32 not in text
