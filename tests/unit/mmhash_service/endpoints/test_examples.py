"""Each example of the OpenAPI document works, and so does its page."""

import re

import httpx
import pytest

from mmhash_service.endpoints import examples

CALLS = {
    "/hash": examples.HASH,
    "/annotate?engine=vllm": examples.ANNOTATE,
    "/pad": examples.PAD,
    "/blocks": examples.BLOCKS,
}


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path, each in CALLS.items() for name in each]
)
def test_each_example_is_answered(client: httpx.Client, path: str, name: str) -> None:
    response = client.post(path, json=CALLS[path][name]["value"])
    if name == "url":
        assert response.json()["type"] == "urn:mmhash:problem:url-off"
        assert "MMHASH_URL_HOSTS" in response.json()["detail"]
    else:
        assert response.status_code == 200


def test_the_page_needs_no_other_host(client: httpx.Client) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    links = re.findall(r'(?:href|src)="([^"#]+)', response.text)
    assert {"page/page.css", "openapi.json"} <= {*links}
    for link in links:
        assert "//" not in link
        assert client.get("/" + link).status_code == 200
    assert "<script" not in response.text
    paths = client.get("/openapi.json").json()["paths"]
    assert all(f"POST {path}</h2>" in response.text for path in paths if "post" in paths[path])
    anchors = re.findall(r'href="#([^"]+)"', response.text)
    assert all(f'id="{anchor}"' in response.text for anchor in anchors)
