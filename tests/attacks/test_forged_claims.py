"""Forged holders, fences and records, to publish a false result or to stop the work of others.

Holders are secrets, fences grow, names are those of a tenant, and results are sealed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mmhash_service.app import create_app
from mmhash_service.settings import Settings
from tests.support import in_process
from tests.support.patience import be_patient
from tests.support.redis import RedisServer, running_redis

MINE, OTHER = "ab" * 16, "cd" * 16
TENANTS = {"acme": "11" * 32, "umbrella": "22" * 32}


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module", params=["memory", "redis"])
def client(request: pytest.FixtureRequest, redis: RedisServer) -> Iterator[httpx.Client]:
    url = redis.url if request.param == "redis" else None
    with pytest.MonkeyPatch.context() as patch:
        be_patient(patch)
        with in_process.running(create_app(Settings(memo_url=url, tenants=TENANTS))) as server:
            yield server.client


def post(client: httpx.Client, tenant: str | None = None, **body: Any) -> httpx.Response:
    headers = {"X-Mmhash-Tenant": tenant} if tenant else {}
    return client.post("/claim", json=body, headers=headers)


def acquire(client: httpx.Client, tenant: str | None = None, *, key: str) -> httpx.Response:
    """Claim it for longer than a busy machine takes for the rest of a test."""
    return post(client, tenant, action="acquire", key=key, holder=MINE, ttl_s=300)


def problem(answer: httpx.Response) -> str:
    return answer.json()["type"].removeprefix("urn:mmhash:problem:")


def test_a_forged_fence_or_holder_changes_nothing(client: httpx.Client) -> None:
    fence = acquire(client, key="k").json()["fence"]
    forged = [(OTHER, fence), (MINE, fence + 1), (MINE, fence - 1), (MINE, 0), (OTHER, fence + 1)]
    for holder, number in [*forged, (MINE, (1 << 53) - 1)]:
        who = {"key": "k", "holder": holder, "fence": number}
        for action in ({"action": "renew"}, {"action": "fail"}):
            assert problem(post(client, **action, **who)) == "claim-lost"
        done = post(client, action="complete", result={"worker": "evil"}, **who)
        assert (done.status_code, problem(done)) == (409, "claim-lost")
    seen = post(client, action="wait", key="k").json()
    assert (seen["state"], seen["fence"], "result" in seen) == ("busy", fence, False)


def test_tenants_have_claims_of_their_own(client: httpx.Client) -> None:
    fences = {}
    for tenant in ("acme", "umbrella", None):
        held = acquire(client, tenant, key="shared").json()
        assert held["state"] == "held"
        fences[tenant] = held["fence"]
    body = {"action": "complete", "key": "shared", "holder": MINE, "result": {"worker": "w"}}
    assert post(client, "acme", fence=fences["acme"], **body).status_code == 200
    if fences["umbrella"] != fences["acme"]:
        assert problem(post(client, "umbrella", fence=fences["acme"], **body)) == "claim-lost"
    states = [
        post(client, tenant, action="find", keys=["shared"]).json()["claims"][0]["state"]
        for tenant in ("acme", "umbrella", None)
    ]
    assert states == ["done", "busy", "busy"]


@pytest.mark.parametrize(
    "body",
    [
        {"action": "steal", "key": "k"},
        {"action": "acquire", "key": "k"},
        {"action": "acquire", "key": "", "holder": MINE},
        {"action": "acquire", "key": "k" * 1025, "holder": MINE},
        {"action": "acquire", "key": "k", "holder": MINE.upper()},
        {"action": "acquire", "key": "k", "holder": MINE, "fence": 1},
        {"action": "acquire", "key": "k", "holder": MINE, "ttl_s": 1e9},
        {"action": "acquire", "key": "k", "holder": MINE, "wait_s": 31},
        {"action": "renew", "key": "k", "holder": MINE, "fence": 1 << 53},
        {"action": "renew", "key": "k", "holder": MINE, "fence": -1},
        {"action": "renew", "key": "k", "holder": MINE, "fence": 1.5},
        {"action": "complete", "key": "k", "holder": MINE, "fence": 1, "result": "text"},
        {"action": "find", "keys": []},
        {"action": "find", "keys": ["k"] * 65},
    ],
)
def test_malformed_bodies_are_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    answer = post(client, **body)
    assert (answer.status_code, problem(answer)) == (422, "invalid-json")


def test_a_long_result_is_refused(client: httpx.Client) -> None:
    fence = acquire(client, key="long").json()["fence"]
    who = {"key": "long", "holder": MINE, "fence": fence}
    answer = post(client, action="complete", result={"worker": "w" * 20_000}, **who)
    assert (answer.status_code, problem(answer)) == (413, "claim-too-large")
    assert post(client, action="fail", **who).json()["state"] == "free"


def test_a_nan_in_a_result_is_not_passed_on(client: httpx.Client) -> None:
    fence = post(client, action="acquire", key="nan", holder=MINE).json()["fence"]
    text = json.dumps(
        {"action": "complete", "key": "nan", "holder": MINE, "fence": fence, "result": {"x": 1}}
    ).replace('"x": 1', '"x": NaN')
    headers = {"content-type": "application/json"}
    assert client.post("/claim", content=text, headers=headers).status_code == 422


def test_a_reader_of_redis_sees_no_secret_and_a_writer_forges_no_result(
    redis: RedisServer, tmp_path: Path
) -> None:
    with in_process.running(create_app(Settings(memo_url=redis.url))) as server:
        client = server.client
        with redis.client() as admin:
            admin.flushall()
            fence = post(client, action="acquire", key="secret", holder=MINE).json()["fence"]
            done = {"key": "secret", "holder": MINE, "fence": fence, "result": {"worker": "w7"}}
            post(client, action="complete", **done)
            (name,) = admin.keys("mmhash:claim:*")
            stored = b"".join(admin.hgetall(name).values()) + name
            for secret in (b"secret", MINE.encode(), bytes.fromhex(MINE), b"w7"):
                assert secret not in stored
            assert 0 < admin.pttl(name) <= 1_300_000
            for forged in (b'{"worker":"evil"}', b"", bytes(100), bytes(70_000)):
                admin.hset(name, "result", forged)
                answer = post(client, action="wait", key="secret")
                assert problem(answer) == "claims-unavailable"
            admin.delete(name)
            admin.set(name, "a string")
            assert problem(post(client, action="wait", key="secret")) == "claims-unavailable"
            admin.delete(name)
        while (free := post(client, action="wait", key="secret")).status_code == 503:
            pass
        assert free.json()["state"] == "free"


def test_workers_without_a_shared_store_refuse_claims() -> None:
    with in_process.running(create_app(Settings(workers=2))) as server:
        answer = post(server.client, action="acquire", key="k", holder=MINE)
        assert (answer.status_code, problem(answer)) == (403, "claims-off")
