"""SIGHUP under load: API keys, tenants and tag secrets are read again, and no request is dropped."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import httpx
import pytest
from blake3 import blake3

from tests.support.service import Service, count, environment, serving
from tests.support.waiting import wait_until

OLD, NEW, BOTH = "old key", "new key", "key of all files"
BODY = {"content": b"abc", "headers": {"content-type": "application/octet-stream"}}


def write(path: Path, keys: list[str], tenants: dict[str, str], secrets: list[str]) -> None:
    """Replace the file as a whole, as editors and Kubernetes do."""
    digests = json.dumps([blake3(key.encode()).hexdigest() for key in keys])
    lines = [f"api_key_digests = {digests}", f"tag_secrets = {json.dumps(secrets)}", "[tenants]"]
    lines += [f'{name} = "{secret}"' for name, secret in tenants.items()]
    new = path.with_suffix(".new")
    new.write_text("\n".join(lines))
    new.replace(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    write(path, [OLD, BOTH], {"acme": "11" * 32}, ["aa" * 32])
    return path


def status(client: httpx.Client, key: str, tenant: str | None = None, query: str = "") -> int:
    headers = {**BODY["headers"], "authorization": f"Bearer {key}"}
    headers |= {"x-mmhash-tenant": tenant} if tenant else {}
    return client.post(f"/hash{query}", content=BODY["content"], headers=headers).status_code


def reload(service: Service, processes: int, pattern: str = "reloaded the settings") -> None:
    service.process.send_signal(signal.SIGHUP)
    service.log.wait_for(pattern, processes)


@contextmanager
def under_load(service: Service) -> Iterator[list[int]]:
    """Send requests from four clients during the block. The list gets the status of each."""
    statuses: list[int] = []
    is_over = Event()

    def ask() -> None:
        with service.new_client() as client:
            while not is_over.is_set():
                statuses.append(status(client, BOTH))

    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask) for _ in range(4)]
        try:
            yield statuses
        finally:
            is_over.set()
        for each in asked:
            each.result()


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_reload_replaces_keys_tenants_and_secrets_under_load(file: Path, processes: int) -> None:
    with (
        serving("--processes", str(processes), "--config", str(file), env=environment()) as service,
        service.new_client() as client,
    ):
        assert [status(client, key) for key in (OLD, NEW, BOTH)] == [200, 401, 200]
        with under_load(service) as statuses:
            for secret in ("22" * 32, "33" * 32):
                before = len(statuses)
                wait_until(lambda before=before: len(statuses) > before + 20)
                write(file, [NEW, BOTH], {"umbrella": secret}, [])
                reload(service, processes)
            before = len(statuses)
            wait_until(lambda: len(statuses) > before + 20)
        assert set(statuses) == {200}
        for _ in range(4 * processes):  # each on a new connection, which any process may accept
            with service.new_client() as other:
                assert [status(other, key) for key in (OLD, NEW)] == [401, 200]
                assert status(other, NEW, "acme") == 403
                assert status(other, NEW, "umbrella") == 200
                assert status(other, NEW, query="?sign=true&engines=vllm") == 403
        assert "draining" not in service.log.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("api_key_digests = [", "Invalid value|array"),
        ('api_key_digests = ["zz"]', "api_key_digests.*match pattern"),
        ("", "api_key_digests"),
    ],
)
def test_settings_that_cannot_be_read_again_stay(file: Path, text: str, reason: str) -> None:
    with (
        serving("--config", str(file), env=environment()) as service,
        service.new_client(headers={"authorization": f"Bearer {OLD}"}) as client,
    ):
        file.write_text(text)
        reload(service, 1, f"{reason}.*stay in use")
        assert [status(client, key) for key in (OLD, NEW)] == [200, 401]
        assert count(client, "mmhash_reloads_total", result="failed") == 1
        assert "zz" not in service.log.text


@pytest.mark.slow
def test_other_settings_need_a_restart(file: Path) -> None:
    with (
        serving("--config", str(file), env=environment()) as service,
        service.new_client(headers={"authorization": f"Bearer {OLD}"}) as client,
    ):
        file.write_text("max_body_bytes = 7\n" + file.read_text())
        reload(service, 1, "restart: max_body_bytes")
        assert client.get("/info").json()["limits"]["max_body_bytes"] == 1 << 30
