"""A real Prometheus, if Debian's package is installed."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.ports import free_port
from tests.support.service import TIMEOUT_S

BINARY, TOOL = shutil.which("prometheus"), shutil.which("promtool")
NEEDED = "needs prometheus and promtool (apt-get install prometheus)"


class Prometheus:
    """A running server, by its HTTP API."""

    def __init__(self, port: int) -> None:
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=TIMEOUT_S)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the vector of an instant query."""
        answer = self._http.get("/query", params={"query": expression}).json()
        assert answer["status"] == "success", answer
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        found = self.query('ALERTS{alertstate="firing"}')
        return {each["metric"]["alertname"] for each in found}

    def episodes(self, alert: str, begin: float) -> int:
        """Return how often an alert has fired since a time: each episode has its own start."""
        params = {"start": begin, "end": time.time(), "step": "0.5"}

        def samples(query: str) -> Iterator[tuple[frozenset[tuple[str, str]], float, str]]:
            answer = self._http.get("/query_range", params=params | {"query": query}).json()
            assert answer["status"] == "success", answer
            for each in answer["data"]["result"]:
                labels = each["metric"].items() - {("alertstate", "firing")}
                series = frozenset(label for label in labels if label[0] != "__name__")
                yield from ((series, at, value) for at, value in each["values"])

        fired = samples(f'ALERTS{{alertname="{alert}",alertstate="firing"}}')
        times = {(series, at) for series, at, _ in fired}
        starts = samples(f'ALERTS_FOR_STATE{{alertname="{alert}"}}')
        return len({start for series, at, start in starts if (series, at) in times})

    def close(self) -> None:
        """Close the client."""
        self._http.close()


@contextmanager
def running_prometheus(
    folder: Path, targets: Mapping[str, str], rules: str = "groups: []"
) -> Iterator[Prometheus]:
    """Scrape the targets, by job, every 2 s; skip the test if there is no prometheus."""
    if BINARY is None or TOOL is None:
        pytest.skip(NEEDED)
    (folder / "alerts.yml").write_text(rules)
    jobs = [
        {"job_name": job, "static_configs": [{"targets": [address]}]}
        for job, address in targets.items()
    ]
    every = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "500ms"}
    config = {"global": every, "rule_files": ["alerts.yml"], "scrape_configs": jobs}
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    subprocess.run([TOOL, "check", "config", str(file)], check=True, capture_output=True)
    port = free_port()
    command = [BINARY, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    process = subprocess.Popen(command)
    server = Prometheus(port)
    try:
        until = time.monotonic() + TIMEOUT_S
        while True:
            try:
                server.query("vector(1)")
                break
            except (httpx.TransportError, ValueError):
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
        yield server
    finally:
        server.close()
        process.terminate()
        process.wait(TIMEOUT_S)
