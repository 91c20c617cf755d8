"""The files of the page as they are served; tests/browser tests what they do."""

import re

import httpx
import pytest
from starlette.testclient import TestClient

import mmhash
from mmhash_service.endpoints.page import FILES
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.gateway import create_gateway
from mmhash_service.settings import Settings

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@pytest.mark.parametrize("url", FILES)
def test_a_file_has_its_type_and_a_strict_content_policy(client: httpx.Client, url: str) -> None:
    answer = client.get(url)
    path = FILES[url]
    assert answer.status_code == 200
    if path.suffix != ".html":
        assert answer.content == path.read_bytes()
    assert answer.headers["content-type"] == TYPES[path.suffix]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
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


@pytest.mark.parametrize("url", ["/page", "/page/", "/page/index.html", "/page/..%2fapp.py"])
def test_other_paths_are_not_served(client: httpx.Client, url: str) -> None:
    assert client.get(url).status_code == 404


def test_a_page_has_the_version_and_links_that_lead_somewhere(client: httpx.Client) -> None:
    for url in ("/", "/fleet"):
        page = client.get(url).text
        assert f"<small>{mmhash.__version__}</small>" in page
        assert "{{" not in page
        links = re.findall(r'<a href="(.+?)"', page)
        assert links == ["./", "fleet", "docs"]
        assert page.count('aria-current="page"') == 1
        for link in links:
            assert client.get(f"/{link.removeprefix('./')}").status_code == 200


def test_the_gateway_has_the_page_of_the_fleet_only() -> None:
    app = create_gateway(Settings(), GatewaySettings())
    with TestClient(app) as client:
        page = client.get("/fleet")
        assert (page.status_code, "<nav" in page.text) == (200, True)
        assert re.findall(r'<a href="(.+?)"', page.text) == []  # those paths are the workers'
        for url in re.findall(r'(?:href|src)="(.+?)"', page.text):
            assert client.get(f"/{url}").status_code == 200
        assert client.get("/docs").status_code == 503  # without workers
