"""A request id that breaks out of its header, or fills the log.

An id of 1 to 64 plain characters is kept. Any other is replaced by a new one.
"""

import re
from typing import Any

import pytest


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"a" * 65,
        b"a b",
        b"a\tb",
        b"a;b",
        b"<script>",
        b"\xc3\xa4",
        b"\xff",
        b"a%0d%0aSet-Cookie:x",
        b"${jndi:ldap://x}",
        b"../..",
        b"a" * 60_000,
    ],
)
def test_an_id_that_is_no_plain_word_is_ignored(server: Any, value: bytes) -> None:
    answer = server.client.get("/version", headers=[(b"x-request-id", value)])
    assert answer.status_code == 200
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])
