"""A multipart body of a million parts, of headers without an end, or whose boundary is in doubt.

Parts and headers are counted, at most one part is open, and where the first boundary is no cut can change.
"""

from typing import Any

import pytest

from tests.support.responses import refusal_of

KIND = "multipart/form-data; boundary=b"
NAME = b'Content-Disposition: form-data; name="a"\r\n'
PART = b"--b\r\n" + NAME + b"\r\nabc\r\n"
END = b"--b--\r\n"

DAMAGED = {
    "headers": b"--b\r\n"
    + b"".join(b"a%d:b\r\n" % i for i in range(100_000))
    + b"\r\nabc\r\n"
    + END,
    "a header's length": b"--b\r\n" + NAME + b"a:" + b"b" * 1_000_000 + b"\r\n\r\nabc\r\n" + END,
    "a header's name": b"--b\r\n" + b"a" * 1_000_000 + b":b\r\n\r\nabc\r\n" + END,
    "a folded header": b"--b\r\nContent-Disposition: form-data;\r\n name=a\r\n\r\nabc\r\n" + END,
    "bare line feeds": PART.replace(b"\r\n", b"\n") + END,
    "a preamble": b"x\r\n" + PART + END,
    "a preamble behind a line break": b"\r\nx\r\n" + PART + END,
    "boundaries": b"--b\r" * 100_000,
    "dashes": b"-" * 1_000_000,
    "a NUL in a name": b"--b\r\nContent-Disposition\0: form-data; name=a\r\n\r\nabc\r\n" + END,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_such_a_body_is_refused(server: Any, name: str) -> None:
    assert refusal_of(server.hash(DAMAGED[name], KIND)) == "damaged-multipart"


def test_parts_are_counted(server: Any) -> None:
    before = server.memory()
    assert refusal_of(server.hash(PART * 100_000 + END, KIND)) == "too-many-items"
    assert server.memory() - before < 64 << 20
