"""A few kilobytes whose Content-Encoding unpacks to gigabytes.

The service unpacks nothing: it refuses a body with a Content-Encoding before reading it.
"""

import gzip
from typing import Any

import pytest

import mmhash
from tests.support.responses import items_of, refusal_of

CODINGS = ["gzip", "deflate", "br", "zstd", "x-gzip", "gzip, gzip", "Identity, gzip", ""]


@pytest.mark.parametrize(
    ("path", "coding"),
    [
        *(("/hash", coding) for coding in CODINGS),
        *((path, "gzip") for path in ("/annotate?engine=vllm", "/pad", "/blocks")),
    ],
)
def test_a_compressed_body_is_refused(server: Any, path: str, coding: str) -> None:
    kind = "application/octet-stream" if path == "/hash" else "application/json"
    headers = {"content-type": kind, "content-encoding": coding}
    # Plain JSON: a gateway that obeys the header would read another request.
    body = gzip.compress(bytes(1 << 20)) if path == "/hash" else b'{"messages":[]}'
    answer = server.client.post(path, content=body, headers=headers)
    assert refusal_of(answer) == "unsupported-encoding"


def test_the_header_of_an_engine_is_refused(server: Any) -> None:
    headers = {"content-type": "application/json", "x-body-compressed": "zstd"}
    answer = server.client.post("/annotate?engine=sglang", content=b'{"text":"a"}', headers=headers)
    assert refusal_of(answer) == "unsupported-encoding"


@pytest.mark.parametrize(
    "line",
    [
        "Content-Encoding: gzip",
        "content-encoding: identity",
        "Content-Encoding:",
        "Content-Transfer-Encoding: base64",
        "Content-Transfer-Encoding: quoted-printable",
        "CONTENT-TRANSFER-ENCODING: Base64",
        "Content-Transfer-Encoding: binary, base64",
        "Content-Transfer-Encoding:",
        "Transfer-Encoding: gzip",
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_part_with_a_coding_is_refused(server: Any, line: str, first: bool) -> None:
    lines = ['Content-Disposition: form-data; name="a"', "Content-Type: image/png"]
    lines.insert(0 if first else 2, line)
    body = "--xyz\r\n" + "\r\n".join(lines) + "\r\n\r\nYWJj\r\n--xyz--\r\n"
    answer = server.hash(body.encode(), "multipart/form-data; boundary=xyz")
    assert refusal_of(answer) == "unsupported-encoding"


@pytest.mark.parametrize("coding", ["binary", "8bit", "7BIT"])
def test_a_part_without_a_coding_is_hashed(server: Any, coding: str) -> None:
    head = f'Content-Disposition: form-data; name="a"\r\nContent-Transfer-Encoding: {coding}'
    body = f"--xyz\r\n{head}\r\n\r\nabc\r\n--xyz--\r\n".encode()
    (item,) = items_of(server.hash(body, "multipart/form-data; boundary=xyz"))
    assert item["key"] == mmhash.key(b"abc").hex()
