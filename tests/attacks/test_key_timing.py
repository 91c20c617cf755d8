"""An attacker who measures how long a refusal takes learns a good API key byte by byte.

Keys are hashed first, and the digests are compared with all that are known, each in constant time.
"""

import hmac
from typing import Any

import pytest
from blake3 import blake3

from mmhash_service.middleware import api_keys as auth
from tests.support.responses import refusal_of
from tests.support.victim import serving

KEYS = ["a" * 32, "b" * 32, "c" * 32]


@pytest.fixture(scope="module")
def locked() -> Any:
    digests = [blake3(key.encode()).hexdigest() for key in KEYS]
    with serving(key=KEYS[1], api_key_digests=digests) as server:
        yield server


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "Bearer",
        "Bearer a",
        "Bearer " + "a" * 31,
        "Bearer " + "a" * 33,
        "Bearer " + "A" * 32,
        "bearer " + "a" * 32,
        "Bearer  " + "a" * 32,
        "Basic " + "a" * 32,
        "Bearer " + "a" * 32 + ", Bearer x",
        "Bearer " + blake3(b"a" * 32).hexdigest(),
        "Bearer " + "a" * 60_000,
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_key_is_refused(locked: Any, value: str | None) -> None:
    headers = {} if value is None else {"authorization": value}
    for path in ("/version", "/hash", "/metrics", "/nothing"):
        assert refusal_of(locked.client.get(path, headers=headers)) == "unauthorized"
    locked.assert_well()


def test_every_key_is_compared_whole_whichever_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work that a timing could show is counted here, so nothing depends on a clock."""
    digests = tuple(blake3(key.encode()).hexdigest() for key in KEYS)
    compared: list[tuple[int, int]] = []

    def count(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(auth, "compare_digest", count)
    seen = set()
    for key in (*KEYS, "", "a", "a" * 31, KEYS[0] + "a", "\xff" * 1000):
        compared.clear()
        auth._is_valid(key, digests)
        seen.add(tuple(compared))
    assert seen == {((64, 64),) * len(KEYS)}
