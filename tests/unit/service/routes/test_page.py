"""The page's files as they are served; tests/browser has what they do in a browser."""

import re
from pathlib import Path

import httpx
import pytest

from mmhash_service.routes.page import FILES

FOLDER = Path(__file__).parents[4] / "service" / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def test_every_file_of_the_folder_is_served() -> None:
    assert {path.name for path in FILES.values()} == {path.name for path in FOLDER.iterdir()}
    assert FILES["/"].name == "index.html"


@pytest.mark.parametrize("url", FILES)
def test_a_file_comes_whole_with_its_type_and_may_do_nothing_foreign(
    client: httpx.Client, url: str
) -> None:
    answer = client.get(url)
    path = FILES[url]
    assert answer.status_code == 200
    assert answer.content == path.read_bytes()
    assert answer.headers["content-type"] == TYPES[path.suffix]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = dict(
        rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; ")
    )
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' blob: data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }


@pytest.mark.parametrize("url", FILES)
def test_who_has_a_file_is_told_so(client: httpx.Client, url: str) -> None:
    first = client.get(url)
    assert first.headers["cache-control"] == "no-cache"
    etag = first.headers["etag"]
    for known in (etag, f'"other", W/{etag}'):
        again = client.get(url, headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    assert client.get(url, headers={"if-none-match": '"other"'}).status_code == 200


def test_the_head_alone_can_be_asked_for(client: httpx.Client) -> None:
    answer = client.head("/")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) == len((FOLDER / "index.html").read_bytes())


@pytest.mark.parametrize("url", ["/page", "/page/", "/page/index.html", "/page/..%2fapp.py"])
def test_nothing_else_is_served(client: httpx.Client, url: str) -> None:
    assert client.get(url).status_code == 404


def test_no_file_names_another_host() -> None:
    names = set()
    for path in FOLDER.iterdir():
        names |= set(re.findall(r"(?:https?:)?//[^\s\"'*]+", path.read_text()))
    assert names == {"http://www.w3.org/2000/svg"}  # a namespace, which nobody asks


def test_every_file_that_is_named_is_there() -> None:
    page = (FOLDER / "index.html").read_text()
    linked = re.findall(r'(?:href|src)="(.+?)"', page)
    imported = [
        name
        for path in FOLDER.glob("*.js")
        for name in re.findall(r'from "\./(.+?)"', path.read_text())
    ]
    assert len(linked) == 3
    assert {f"/{name}" for name in linked} <= FILES.keys()
    assert {f"/page/{name}" for name in imported} <= FILES.keys()


def test_the_page_is_not_in_the_openapi_page(client: httpx.Client) -> None:
    assert not client.get("/openapi.json").json()["paths"].keys() & FILES.keys()
