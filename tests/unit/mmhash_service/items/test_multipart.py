"""multipart/form-data: each part has the items that it would have alone; malformed forms are refused."""

from collections.abc import Iterator

import httpx
import pytest

import mmhash
from mmhash_service.limits.capacity import MAX_ITEMS
from tests.support.responses import items_of, problem_of

FORM = {"content-type": "multipart/form-data; boundary=xyz"}


def form(*parts: tuple[str, bytes]) -> bytes:
    body = b"".join(b"--xyz\r\n%b\r\n\r\n%b\r\n" % (head.encode(), data) for head, data in parts)
    return body + b"--xyz--\r\n"


def part(name: str, data: bytes, content_type: str | None = None) -> tuple[str, bytes]:
    head = f'Content-Disposition: form-data; name="{name}"'
    return (f"{head}\r\nContent-Type: {content_type}" if content_type else head), data


def cut(body: bytes, step: int) -> Iterator[bytes]:
    for at in range(0, len(body), step):
        yield body[at : at + step]


def test_parts_are_items_in_order(client: httpx.Client) -> None:
    files = [("b", ("two.bin", b"abc")), ("a", ("one.png", b"def", "image/png"))]
    found = items_of(client.post("/hash", files=files, data={"plain": "x"}))
    assert [(item["name"], item["key"]) for item in found] == [
        (name, mmhash.key(data).hex())
        for name, data in (("plain", b"x"), ("two.bin", b"abc"), ("one.png", b"def"))
    ]


@pytest.mark.parametrize("step", [1, 2, 7, 64, 100_000])
def test_a_form_may_arrive_in_any_pieces(client: httpx.Client, step: int) -> None:
    contents = [b"", b"\r\n--xyz!", b"\r\n--xy", b"-" * 50, bytes(i % 251 for i in range(300))]
    body = form(*(part(str(number), data) for number, data in enumerate(contents)))
    if step == 100_000:
        contents.append(bytes(i % 251 for i in range(700_000)))
        body = form(*(part(str(number), data) for number, data in enumerate(contents)))
    found = items_of(client.post("/hash", content=cut(body, step), headers=FORM))
    assert [item["key"] for item in found] == [mmhash.key(data).hex() for data in contents]


def test_a_part_that_is_no_image_has_no_pixels(client: httpx.Client) -> None:
    answer = client.post("/hash?of=pixels", files=[("a", ("a", b"abc"))])
    assert problem_of(answer) == (422, "invalid-query")


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data", "application/json", "x"])
def test_a_part_of_another_type_is_refused(client: httpx.Client, kind: str) -> None:
    answer = client.post("/hash", content=form(part("a", b"abc", kind)), headers=FORM)
    assert problem_of(answer) == (415, "unsupported-media-type")


def test_a_form_is_no_tensor(client: httpx.Client) -> None:
    answer = client.post("/hash?dtype=uint8&shape=3", files=[("a", ("a", b"abc"))])
    assert problem_of(answer) == (422, "invalid-tensor")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no form",
        b"--xyz\r\n",
        form(part("a", b"abc"))[:-8],
        form(("Content-Type: image/png", b"abc")),
        form(("Content-Disposition: form-data", b"abc")),
        form(("Content-Disposition: attachment; name=a", b"abc")),
        form((": form-data", b"abc")),
        form(("X: " + "x" * 100_000, b"abc")),
        form(("X" * 100_000 + ": x", b"abc")),
        form(("\r\n".join(f"X{at}: 1" for at in range(100)), b"abc")),
        form(("Content-Disposition: form-data;\r\n name=a", b"abc")),
        form(("Content-Disposition\0: form-data; name=a", b"abc")),
        form(part("a", b"abc")).replace(b"\r\n", b"\n"),
        # Where the first boundary is in doubt, another parser may cut the form elsewhere.
        b"preamble\r\n" + form(part("a", b"abc")),
        b"\r\npreamble\r\n" + form(part("a", b"abc")),
        b"--xyz\r" * 100_000,
        b"-" * 1_000_000,
        b"\xff" * 1000,
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_damaged_form_is_refused(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/hash", content=body, headers=FORM)
    assert problem_of(answer) == (422, "damaged-multipart")


def test_too_many_parts_are_refused(client: httpx.Client) -> None:
    body = form(*[part("a", b"abc")] * (MAX_ITEMS + 1))
    answer = client.post("/hash", content=body, headers=FORM)
    assert problem_of(answer) == (413, "too-many-items")


@pytest.mark.parametrize("parameters", ["", "; boundary=", "; boundary=" + "x" * 71, ";" * 2000])
def test_a_form_without_a_good_boundary_is_refused(client: httpx.Client, parameters: str) -> None:
    headers = {"content-type": "multipart/form-data" + parameters}
    answer = client.post("/hash", content=form(part("a", b"abc")), headers=headers)
    assert problem_of(answer) == (422, "damaged-multipart")
