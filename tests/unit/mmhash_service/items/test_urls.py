"""Items by URL: hashed while they arrive, or known to be unchanged."""

import secrets
from collections.abc import Iterator
from io import BytesIO
from itertools import count
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from PIL import Image

import mmhash
from mmhash_service.fetch.fetcher import Fetcher
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.images import encode_noise
from tests.support.in_process import running
from tests.support.origin import Origin
from tests.support.responses import items_of, problem_of

LIMIT = 1 << 20
TENANTS = {"acme": "11" * 32, "umbrella": "22" * 32}


async def local(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


class Service:
    """A service that may ask the hosts of one domain."""

    def __init__(self, server: Any, port: int) -> None:
        self.client = server.client
        # Each test has its own host, because the service remembers what it fetched.
        self._base = f"http://{secrets.token_hex(8)}.name.example:{port}"

    def item(self, path: str, kind: str = "bytes", **more: Any) -> dict[str, Any]:
        return {"kind": kind, "url": self._base + path, **more}

    def post(self, *items: Any, tenant: str | None = None, **query: str) -> httpx.Response:
        headers = {"X-Mmhash-Tenant": tenant} if tenant else None
        return self.client.post("/hash", json={"items": items}, params=query, headers=headers)


@pytest.fixture(scope="module")
def shared_origin() -> Iterator[Origin]:
    host = Origin()
    yield host
    host.close()


@pytest.fixture
def origin(shared_origin: Origin) -> Origin:
    shared_origin.answers.clear()
    shared_origin.heads.clear()
    shared_origin.connections = 0
    return shared_origin


@pytest.fixture(scope="module")
def app(shared_origin: Origin) -> FastAPI:
    settings = Settings(
        url_hosts=[f"*.name.example:{shared_origin.port}"],
        url_networks=["127.0.0.0/8"],
        max_body_bytes=LIMIT,
        timeout_s=60,
        tenants=TENANTS,
    )
    app = create_app(settings)
    app.state.resources.fetcher = Fetcher(settings, local)
    return app


@pytest.fixture(scope="module")
def server(app: FastAPI) -> Iterator[Any]:
    """A server for all tests, because starting one is slow."""
    with running(app) as server:
        yield server


@pytest.fixture
def service(app: FastAPI, server: Any, origin: Origin) -> Iterator[Service]:
    yield Service(server, origin.port)
    server.wait_until_idle()
    assert app.state.resources.limits.held == 0


_widths = count(17)


@pytest.fixture
def picture() -> bytes:
    """A PNG that no other test has sent: the service remembers pixels by the file."""
    return encode_noise("PNG", size=(next(_widths), 12))


def test_content_by_url_has_the_key_that_it_has_in_a_body(service: Service, origin: Any) -> None:
    image, long = encode_noise("PNG"), bytes(at % 251 for at in range(LIMIT))
    origin.answers["/image"] = origin.ok(image)
    origin.answers["/long"] = origin.ok(long)
    found = items_of(
        service.post(
            service.item("/image", name="one"),
            service.item("/image", "image"),
            service.item("/long"),
            {"kind": "bytes", "url": "DATA:,a%62c"},
        )
    )
    wanted = [image, Image.open(BytesIO(image)), long, b"abc"]
    assert [item["key"] for item in found] == [mmhash.key(item).hex() for item in wanted]
    assert [item["name"] for item in found[:2]] == ["one", None]


def test_an_image_at_a_url_without_content_is_refused(service: Service, origin: Any) -> None:
    origin.answers["/empty"] = origin.ok(b"")
    assert problem_of(service.post(service.item("/empty", "image"))) == (422, "damaged-media")


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
@pytest.mark.parametrize("kind", ["bytes", "image"])
def test_unchanged_content_is_not_transferred_again(
    service: Service, origin: Any, picture: bytes, kind: str, algorithm: str
) -> None:
    item = service.item("/a#fragment", kind)
    origin.answers["/a"] = origin.ok(picture, 'ETag: "e"')
    (first,) = items_of(service.post(item, algorithm=algorithm))
    origin.answers["/a"] = b'HTTP/1.1 304 Not Modified\r\nETag: "e"\r\n\r\n'
    (again,) = items_of(service.post(item | {"name": "x"}, algorithm=algorithm))
    assert (first.pop("memo"), again.pop("memo")) == ("miss", "hit")
    assert again == first | {"name": "x"}
    assert len(origin.heads) == 2
    assert "\r\nIf-" not in origin.heads[0]
    assert '\r\nIf-None-Match: "e"\r\n' in origin.heads[1]


def test_changed_content_is_hashed_again(service: Service, origin: Any) -> None:
    for version in (b"1", b"2", b"3"):
        origin.answers["/"] = origin.ok(version, f'ETag: "{version.decode()}"')
        (item,) = items_of(service.post(service.item("/")))
        assert item["key"] == mmhash.key(version).hex()
        assert item["memo"] == "miss"
    assert '\r\nIf-None-Match: "2"\r\n' in origin.heads[2]


def test_an_image_whose_pixels_were_forgotten_is_sent_again(
    service: Service, origin: Any, picture: bytes
) -> None:
    """As plain bytes its digest is known, and that is not enough."""
    origin.answers["/"] = origin.ok(picture, 'ETag: "e"')
    items_of(service.post(service.item("/")))
    (item,) = items_of(service.post(service.item("/", "image")))
    assert item["memo"] == "miss"
    assert "If-None-Match" not in origin.heads[1]


def test_a_tensor_is_not_fetched(service: Service) -> None:
    tensor = {"kind": "tensor", "dtype": "float16", "shape": [4, 12]}
    answer = service.post(service.item("/") | tensor)
    assert problem_of(answer) == (422, "invalid-tensor")


def test_tenants_share_no_urls(service: Service, origin: Any) -> None:
    origin.answers["/"] = origin.ok(b"abc", 'ETag: "e"')
    tenants = [None, None, "umbrella", "umbrella"]
    items = [items_of(service.post(service.item("/"), tenant=tenant))[0] for tenant in tenants]
    assert ["If-None-Match" in head for head in origin.heads] == [False, True, False, True]
    assert len({item["key"] for item in items}) == 2


def test_fetched_content_is_freed_after_its_item(origin: Any) -> None:
    """30 images of 1 MiB, 8 at a time, in 16 MiB."""
    image = encode_noise("BMP", size=(600, 600))
    origin.answers["/a"] = origin.ok(image)
    host = f"127.0.0.1:{origin.port}"
    settings = Settings(
        url_hosts=[host], url_networks=["127.0.0.0/8"], max_held_bytes=16 << 20, timeout_s=60
    )
    items = [{"kind": "image", "url": f"http://{host}/a"}] * 30
    with running(create_app(settings)) as server:
        found = items_of(server.client.post("/hash", json={"items": items}))
    assert {item["key"] for item in found} == {mmhash.key(Image.open(BytesIO(image))).hex()}
