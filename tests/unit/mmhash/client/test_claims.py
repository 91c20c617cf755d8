"""Arguments of the calls for claims, which are checked before anything is sent."""

from collections.abc import Callable
from typing import Any

import pytest

import mmhash
from mmhash.client import Client
from mmhash.client.claims import Claim

HELD = Claim("encode it", "held", 1, "00")
KEY: Any = mmhash.key(b"an image")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda client: client.claim(KEY), "key is a str, not Digest"),
        (lambda client: client.wait_claim(KEY), "key is a str, not Digest"),
        (lambda client: client.find_claims([KEY]), "key is a str, not Digest"),
        (lambda client: client.find_claims("one"), "find_claims() takes a list of keys, not one str"),
        (lambda client: client.complete_claim(HELD, "a"), "result is a dict, not str"),
        (lambda client: client.fail_claim("encode it"), "a Claim is needed, not str"),
    ],
)  # fmt: skip
def test_an_argument_of_another_type_is_named(call: Callable[[Client], Any], reason: str) -> None:
    with (
        Client("http://127.0.0.1:1", retries=0) as client,
        pytest.raises(mmhash.InputTypeError) as refused,
    ):
        call(client)
    assert str(refused.value) == reason
