"""Runs a real Envoy with the configuration of deploy/envoy, and `mmhash picker` beside it."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from tests.live.environments import Environment
from tests.support.gateway import QUICK
from tests.support.ports import free_port
from tests.support.service import FEW, TIMEOUT_S, Service, serving
from tests.support.waiting import wait_until

ENVOY = Environment("envoy", "1.40.0")
CONFIGURATION = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
PICKER = (sys.executable, "-m", "mmhash", "picker", *FEW)

SHOW_METADATA = "x-shown-metadata"
"""The response header in which Envoy shows the endpoints from its metadata."""


class Configuration:
    """The configuration of an Envoy, with the parts that tests change."""

    def __init__(self, workers: Sequence[str], *pickers: str) -> None:
        """Read the file, and insert the addresses of workers and pickers. Envoy asks pickers in turn."""
        self.document: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text())
        resources = self.document["static_resources"]
        self.listener = resources["listeners"][0]
        self.listen(free_port())
        self.manager = self.listener["filter_chains"][0]["filters"][0]["typed_config"]
        self.host = self.manager["route_config"]["virtual_hosts"][0]
        self.filters: list[dict[str, Any]] = self.manager["http_filters"]
        self.ext_proc = self.filters[0]["typed_config"]
        self.workers, self.picker = resources["clusters"]
        self.workers["load_assignment"]["endpoints"] = _endpoints(workers)
        self.picker["load_assignment"]["endpoints"] = _endpoints(pickers)

    def listen(self, port: int) -> None:
        """Listen at another port."""
        self.port = port
        self.listener["address"] = _address(f"127.0.0.1:{port}")

    def show_metadata(self) -> None:
        """Let Envoy show the endpoints from its metadata in each response."""
        value = "%DYNAMIC_METADATA(envoy.lb:x-gateway-destination-endpoint)%"
        header = {"header": {"key": SHOW_METADATA, "value": value}}
        self.host["response_headers_to_add"] = [header]

    def body_mode(self, mode: str) -> None:
        """Send bodies to the picker in this mode."""
        self.ext_proc["processing_mode"]["request_body_mode"] = mode
        if mode == "FULL_DUPLEX_STREAMED":
            self.ext_proc["processing_mode"]["request_trailer_mode"] = "SEND"
            self.ext_proc["allow_content_length_header"] = True

    def subset(self, value: Any) -> None:
        """Set the metadata that limits the workers of each request."""
        fields = {"x-gateway-destination-endpoint-subset": value}
        metadata = {"metadata_namespace": "envoy.lb.subset_hint", "value": fields}
        kind = "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config"
        self.filters.insert(
            0, {"name": "subset", "typed_config": {"@type": kind, "metadata": [metadata]}}
        )


def _address(endpoint: str) -> dict[str, Any]:
    host, _, port = endpoint.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


def _endpoints(addresses: Sequence[str]) -> list[Any]:
    return [{"lb_endpoints": [{"endpoint": {"address": _address(one)}} for one in addresses]}]


@contextmanager
def envoy_with(configuration: Configuration, folder: Path) -> Iterator[httpx.Client]:
    """Run an Envoy, and return a client of it."""
    with envoy_process(configuration, folder) as (_, client):
        yield client


@contextmanager
def envoy_process(
    configuration: Configuration, folder: Path
) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """Run an Envoy, and return its process and a client of it."""
    ENVOY.build_or_skip()
    file = folder / f"envoy-{configuration.port}.yaml"
    file.write_text(yaml.safe_dump(configuration.document))
    with file.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(ENVOY.command("envoy"), "-c", str(file)),
                *("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning"),
            ],
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{configuration.port}"
    try:
        with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
            log_file = file.with_suffix(".log")
            wait_until(lambda: process.poll() is not None or _responds(client))
            assert process.poll() is None, log_file.read_text()
            yield process, client
    finally:
        process.terminate()
        process.wait()


class Picker(NamedTuple):
    """A running picker, and a client of its paths on the metrics port."""

    service: Service
    http: httpx.Client

    @property
    def endpoint(self) -> str:
        """The picker's address, as Envoy's configuration takes it."""
        host, port = self.service.address
        return f"{host}:{port}"

    def loads(self) -> list[tuple[int, float]]:
        """Return the requests and the load of each worker."""
        states = self.http.get("/workers").json()["workers"]
        return [(one["requests"], one["load"]) for one in states]


@contextmanager
def picker_for(
    workers: Sequence[str], *arguments: str, settings: dict[str, Any] | None = None, **options: Any
) -> Iterator[Picker]:
    """Run a picker for these workers, and wait until it accepts streams."""
    named = [text for spec in workers for text in ("--worker", spec)]
    port = free_port()
    chosen = QUICK | {"metrics_port": port} | (settings or {})
    with (
        serving(*named, *arguments, settings=chosen, program=PICKER, **options) as service,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_S) as client,
    ):
        wait_until(lambda: _responds(client))  # it listens for gRPC even earlier
        yield Picker(service, client)


def _responds(client: httpx.Client) -> bool:
    try:
        return client.get("/live").status_code > 0
    except httpx.TransportError:
        return False
