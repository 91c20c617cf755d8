"""Read the workers of a gateway: a fixed list, the addresses of a DNS name, or a file's lines."""

import asyncio
import socket
from ipaddress import ip_address
from pathlib import Path

import httpx

from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker_spec import WorkerSpec, parse_worker


async def read_workers(settings: GatewaySettings) -> list[WorkerSpec]:
    """Return the current workers. Raise OSError or ValueError if they cannot be read."""
    # Read in a thread: a long list would block the event loop.
    return await asyncio.to_thread(_read, settings)


def _read(settings: GatewaySettings) -> list[WorkerSpec]:
    if settings.worker_dns is not None:
        specs = _resolve(parse_worker(settings.worker_dns))
    elif settings.worker_file is not None:
        specs = _read_file(settings.worker_file)
    else:
        specs = [parse_worker(text) for text in settings.worker_list]
    return list({spec.url: spec for spec in specs}.values())


def _read_file(path: Path) -> list[WorkerSpec]:
    text = path.read_text()
    if text and not text.endswith("\n"):  # a last line with `:80` may be half of `:8000`
        raise ValueError(f"{path} does not end with a line break: it may be half written")
    specs: dict[str, WorkerSpec] = {}
    for number, line in enumerate(text.splitlines(), 1):
        worker = line.partition("#")[0].strip()
        if not worker:
            continue
        try:
            spec = parse_worker(worker)
            if specs.setdefault(spec.url, spec) != spec:
                raise ValueError("a worker's URL is given twice")  # noqa: TRY301
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    return list(specs.values())


def _resolve(spec: WorkerSpec) -> list[WorkerSpec]:
    """Return a worker for every address of the spec's host name."""
    url = httpx.URL(spec.url)
    try:
        found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(f"worker_dns: {url.host}: {error.strerror}") from error
    return [_at(spec, address) for address in sorted({str(entry[4][0]) for entry in found})]


def _at(spec: WorkerSpec, address: str) -> WorkerSpec:
    host = f"[{address}]" if ip_address(address).version == 6 else address

    def replaced(endpoint: str | None) -> str | None:
        # The settings allow only endpoints at the same host.
        return endpoint and f"tcp://{host}:{endpoint.rpartition(':')[2]}"

    url = str(httpx.URL(spec.url).copy_with(host=address))
    return spec._replace(url=url, events=replaced(spec.events), replay=replaced(spec.replay))
