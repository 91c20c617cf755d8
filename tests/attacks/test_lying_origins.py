"""Hosts that lie about their digests, rotate, race, redirect and stall, for the key of another file.

A digest counts only after a download has confirmed it; before, only for the tenant of the URL.
"""

import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import mmhash
from mmhash_service.app import create_app
from mmhash_service.fetch.fetcher import Fetcher
from mmhash_service.settings import Settings
from tests.support import in_process
from tests.support.object_store import ObjectStore, Stored, Style
from tests.support.service import count

TENANTS = {"acme": "11" * 32, "umbrella": "22" * 32}


async def local(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture(scope="module")
def shared() -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        yield store


@pytest.fixture
def store(shared: ObjectStore) -> ObjectStore:
    shared.objects.clear()
    shared.forget()
    return shared


@pytest.fixture(scope="module")
def client(shared: ObjectStore) -> Iterator[httpx.Client]:
    hosts = {
        name: f"*.{name}.example:{shared.port}" for name in ("trusted", "ranged", "signed", "plain")
    }
    policies = {
        hosts["trusted"]: {"digests": ["digest", "s3", "xet"]},
        hosts["ranged"]: {"digests": ["digest"], "request": "range"},
        hosts["signed"]: {
            "digests": ["s3"],
            "drop_parameters": ["X-Amz-*"],
        },
    }
    settings = Settings(
        url_hosts=tuple(hosts.values()),
        url_networks=["127.0.0.0/8"],
        url_timeout_s=12,
        url_identity=policies,
        tenants=TENANTS,
    )
    app = create_app(settings)
    app.state.fetcher = Fetcher(settings, local)
    with in_process.running(app) as server:
        yield server.client


class Site:
    """A host of its own for each test: the service remembers what it fetched."""

    def __init__(self, client: httpx.Client, port: int, kind: str = "trusted") -> None:
        self.base = f"http://{secrets.token_hex(8)}.{kind}.example:{port}"
        self._client = client

    def get(self, path: str, tenant: str | None = None, **query: str) -> dict[str, Any]:
        item = {"kind": query.pop("kind", "bytes"), "url": self.base + path}
        headers = {"X-Mmhash-Tenant": tenant} if tenant else {}
        answer = self._client.post("/hash", json={"items": [item]}, headers=headers, params=query)
        assert answer.status_code == 200, answer.text
        (result,) = answer.json()["items"]
        return result


def key_of(content: bytes, tenant: str | None = None) -> str:
    secret = bytes.fromhex(TENANTS[tenant]) if tenant else None
    return mmhash.key(content, tenant=secret).hex()


@pytest.mark.parametrize("style", ["digest", "s3", "xet"])
def test_a_verified_digest_hits_without_a_byte(
    client: httpx.Client, store: ObjectStore, style: Style
) -> None:
    site, content = Site(client, store.port), secrets.token_bytes(5000)
    # No ETag: without the digest each request would download it.
    store.objects["/x"] = Stored(content, style)
    first = site.get("/x")
    store.forget()
    again = [site.get("/x", tenant) for tenant in (None, "acme", "umbrella")]
    assert store.bytes_sent == 0
    assert store.requests == [("HEAD", "/x")] * 3
    assert first["key"] == again[0]["key"] == key_of(content)
    assert [item["key"] for item in again[1:]] == [key_of(content, name) for name in TENANTS]
    assert [item["memo"] for item in (first, *again)] == ["miss", "hit", "hit", "hit"]


@pytest.mark.parametrize("style", ["s3-composite", "content-digest", "none"])
def test_digests_of_anything_but_the_whole_object_are_not_used(
    client: httpx.Client, store: ObjectStore, style: Style
) -> None:
    site, content = Site(client, store.port), secrets.token_bytes(500)
    store.objects["/x"] = Stored(content, style)
    assert [site.get("/x")["memo"] for _ in range(3)] == ["miss"] * 3
    assert store.bytes_sent == 3 * len(content)


def test_a_host_without_a_policy_is_not_believed(client: httpx.Client, store: ObjectStore) -> None:
    site = Site(client, store.port, "plain")
    store.objects["/x"] = Stored(b"some content")
    assert [site.get("/x", "acme")["memo"] for _ in range(2)] == ["miss"] * 2
    assert {method for method, _ in store.requests} == {"GET"}


def test_a_host_that_claims_the_digest_of_another_file_is_not_believed(
    client: httpx.Client, store: ObjectStore
) -> None:
    good, evil = Site(client, store.port), Site(client, store.port)
    victim, bad = secrets.token_bytes(1000), secrets.token_bytes(1000)
    store.objects["/good"] = Stored(victim)
    for _ in range(2):
        assert good.get("/good")["key"] == key_of(victim)
    before = count(client, "mmhash_url_identities_total", result="mismatch")
    store.objects["/evil"] = Stored(bad, etag='"same"', claims=victim)
    # Without a tenant all keys are shared: the content is downloaded each time.
    assert [evil.get("/evil")["key"] for _ in range(3)] == [key_of(bad)] * 3
    assert count(client, "mmhash_url_identities_total", result="mismatch") == before + 3
    assert good.get("/good")["key"] == key_of(victim)


def test_a_lie_reaches_only_the_tenant_that_named_the_url(
    client: httpx.Client, store: ObjectStore
) -> None:
    good, evil = Site(client, store.port), Site(client, store.port)
    victim, bad = secrets.token_bytes(1000), secrets.token_bytes(1000)
    store.objects |= {"/good": Stored(victim), "/evil": Stored(bad, claims=victim)}
    good.get("/good", "acme")
    # This tenant has had the claimed content downloaded: its own risk, and no other key changes.
    own = evil.get("/evil", "acme")
    assert own["key"] == key_of(victim, "acme")
    for tenant in ("umbrella", None, "umbrella", None):
        assert evil.get("/evil", tenant)["key"] == key_of(bad, tenant)
        assert good.get("/good", tenant)["key"] == key_of(victim, tenant)


def test_a_digest_does_not_tell_a_tenant_what_another_has(
    client: httpx.Client, store: ObjectStore
) -> None:
    one, two = Site(client, store.port), Site(client, store.port)
    content = secrets.token_bytes(1000)
    store.objects["/x"] = Stored(content)
    one.get("/x", "acme")
    assert two.get("/x", "umbrella")["memo"] == "miss"
    assert two.get("/x", "umbrella")["memo"] == "hit"


def test_an_object_that_rotates_is_downloaded_again(
    client: httpx.Client, store: ObjectStore
) -> None:
    site = Site(client, store.port)
    for etag in ('"constant"', '"constant"', None, None, '"new"'):
        content = secrets.token_bytes(1000)
        store.objects["/x"] = Stored(content, etag=etag)
        for tenant in (None, "acme", None, "umbrella"):
            assert site.get("/x", tenant)["key"] == key_of(content, tenant)


def test_an_object_that_changes_between_head_and_get(
    client: httpx.Client, store: ObjectStore
) -> None:
    site, old, new = Site(client, store.port), b"old content", b"new content"
    stored = Stored(old, etag='"1"')
    store.objects["/x"] = stored
    site.get("/x", "acme")

    def change() -> None:
        stored.content, stored.etag, stored.after_head = new, '"2"', None

    stored.etag, stored.after_head = '"1b"', change
    assert site.get("/x")["key"] == key_of(new)
    assert [site.get("/x", name)["key"] for name in TENANTS] == [key_of(new, n) for n in TENANTS]


def test_the_digest_of_a_redirect_on_the_same_host_counts(
    client: httpx.Client, store: ObjectStore
) -> None:
    site, content = Site(client, store.port), secrets.token_bytes(1000)
    store.objects |= {
        "/resolve": Stored(content, "xet", target="/blob"),
        "/blob": Stored(content, "none"),
    }
    assert site.get("/resolve")["key"] == key_of(content)
    store.forget()
    assert site.get("/resolve")["memo"] == "hit"
    assert (store.requests, store.bytes_sent) == ([("HEAD", "/resolve")], 0)
    # The resolver keeps its claim, but the blob behind it has changed: nobody can see that by HEAD.
    other = secrets.token_bytes(1000)
    store.objects["/resolve2"] = Stored(content, "xet", target="/blob2")
    store.objects["/blob2"] = Stored(other, "none")
    assert [site.get("/resolve2")["key"] for _ in range(2)] == [key_of(other)] * 2


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/", "http://elsewhere.trusted.example/x"])
def test_a_redirect_to_another_host_is_refused_as_ever(
    client: httpx.Client, store: ObjectStore, target: str
) -> None:
    site = Site(client, store.port)
    store.objects["/x"] = Stored(b"content", "xet", target=target)
    item = {"kind": "bytes", "url": f"{site.base}/x"}
    for tenant in ("acme", "umbrella"):
        headers = {"X-Mmhash-Tenant": tenant}
        answer = client.post("/hash", json={"items": [item]}, headers=headers)
        assert answer.json()["type"] == "urn:mmhash:problem:url-refused"


def test_a_head_that_stalls_or_fails_costs_a_download(
    client: httpx.Client, store: ObjectStore
) -> None:
    site, content = Site(client, store.port), secrets.token_bytes(1000)
    stored = store.objects["/x"] = Stored(content)
    site.get("/x")
    stored.delay_s = 4  # a quarter of the time-out is 3 s
    answer = site.get("/x")
    assert (answer["memo"], answer["key"]) == ("miss", key_of(content))
    stored.delay_s, stored.refuses_head = 0, True
    answer = site.get("/x")
    assert (answer["memo"], answer["key"]) == ("miss", key_of(content))
    stored.refuses_head = False
    assert site.get("/x")["memo"] == "hit"


def test_no_store_is_respected(client: httpx.Client, store: ObjectStore) -> None:
    site = Site(client, store.port)
    store.objects["/x"] = Stored(b"secret", headers={"Cache-Control": "no-store"})
    assert [site.get("/x", "acme")["memo"] for _ in range(3)] == ["miss"] * 3


def test_a_range_request_costs_one_byte(client: httpx.Client, store: ObjectStore) -> None:
    site, content = Site(client, store.port, "ranged"), secrets.token_bytes(5000)
    store.objects["/x"] = Stored(content, refuses_head=True)
    site.get("/x")
    store.forget()
    assert site.get("/x")["key"] == key_of(content)
    assert (store.bytes_sent, store.requests) == (1, [("GET", "/x")])


def test_signatures_are_dropped_from_names_only_by_policy(
    client: httpx.Client, store: ObjectStore
) -> None:
    content = secrets.token_bytes(1000)
    store.objects["/x"] = Stored(content, "s3", etag='"1"')
    for kind, hit in (("signed", "hit"), ("trusted", "miss")):
        site = Site(client, store.port, kind)
        site.get("/x?v=1&X-Amz-Date=1&X-Amz-Signature=aa")
        again = site.get("/x?v=1&X-Amz-Date=2&X-Amz-Signature=bb")
        assert (again["memo"], again["key"]) == (hit, key_of(content))
        assert site.get("/x?v=2&X-Amz-Date=2&X-Amz-Signature=bb")["memo"] == "miss"
    # The host still checks each signature: without a valid one there is no hit.
    site = Site(client, store.port, "signed")
    site.get("/x?X-Amz-Signature=aa")
    item = {"kind": "bytes", "url": f"{site.base}/x?X-Amz-Signature=bad"}
    answer = client.post("/hash", json={"items": [item]})
    assert answer.json()["type"] == "urn:mmhash:problem:url-failed"


def test_annotate_uses_it_too(client: httpx.Client, store: ObjectStore) -> None:
    site, content = Site(client, store.port), secrets.token_bytes(1000)
    store.objects["/x"] = Stored(content)
    part = {"type": "image_url", "image_url": {"url": f"{site.base}/x"}}
    chat = {"messages": [{"role": "user", "content": [part]}]}
    for sent in (len(content), 0):
        store.forget()
        answer = client.post("/annotate?engine=vllm", json=chat)
        assert answer.json()["items"][0]["key"] == key_of(content)
        assert store.bytes_sent == sent
