"""`mmhash serve`, `gateway` and `picker`: start the servers of mmhash_service."""

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmhash.cli.report import say
from mmhash.errors import InputValueError
from mmhash.extras import needs_extra

if TYPE_CHECKING:
    from mmhash_service.gateway.settings import GatewaySettings
    from mmhash_service.gateway.worker_spec import WorkerSpec
    from mmhash_service.settings import Settings

_GATEWAY = "gateway."
"""The prefix of gateway settings in `--set`."""

Host = Annotated[
    str | None, typer.Option(help="The address to listen on.", show_default="MMHASH_HOST")
]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="The port to listen on.", show_default="MMHASH_PORT"),
]
Uds = Annotated[
    Path | None,
    typer.Option(help="Unix socket to listen on instead.", show_default="MMHASH_UDS"),
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Number of processes.", show_default="MMHASH_PROCESSES"),
]
Config = Annotated[
    Path | None,
    typer.Option(help="TOML file with settings.", show_default="MMHASH_CONFIG"),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of docs/settings.md, or gateway.NAME of docs/gateway.md; repeatable.",
    ),
]
Check = Annotated[
    bool, typer.Option("--check", help="Check settings, models and the memo's store, and exit.")
]
Workers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL[,events=…,replay=…,engine=…]",
        help="The address of an engine's server; repeatable.",
    ),
]
WorkerDns = Annotated[
    str | None,
    typer.Option(metavar="URL[,…]", help="Every address of the URL's host name is a worker."),
]
WorkerFile = Annotated[Path | None, typer.Option(help="A file with one worker per line.")]
PolicyName = Annotated[
    str | None,
    typer.Option(
        help="longest-prefix, least-load, round-robin or consistent-hash.",
        show_default="longest-prefix",
    ),
]
GatewayCheck = Annotated[
    bool,
    typer.Option("--check", help="Check the settings, each worker and its KV events, and exit."),
]


def serve(
    *,
    host: Host = None,
    port: Port = None,
    uds: Uds = None,
    processes: Processes = None,
    config: Config = None,
    settings: Set = None,
    check: Check = False,
) -> None:
    """Serve keys and plans over HTTP until stopped.

    Options override MMHASH_… variables, which override the file of --config.
    """
    with needs_extra("service"):
        from mmhash_service.server.check import check_resources  # noqa: PLC0415  (may be missing)

        if not check:  # FastAPI, the engines and numpy would take most of a check's time
            from mmhash_service.http.app import create_app  # noqa: PLC0415
            from mmhash_service.server import server  # noqa: PLC0415

    options = {"host": host, "port": port, "uds": uds, "processes": processes}
    effective, gateway = _read_settings(config, settings, options)
    if check:
        _say_facts(check_resources(effective))
        return
    server.serve(effective, partial(create_app, gateway=gateway))


def run_gateway(
    *,
    worker: Workers = None,
    worker_dns: WorkerDns = None,
    worker_file: WorkerFile = None,
    policy: PolicyName = None,
    host: Host = None,
    port: Port = None,
    uds: Uds = None,
    processes: Processes = None,
    config: Config = None,
    settings: Set = None,
    check: GatewayCheck = False,
) -> None:
    """Route each request to the worker with most of it cached."""
    with needs_extra("service"):
        import mmhash_service.gateway.settings  # noqa: F401, PLC0415  (may be missing)

        if not check:  # as for `serve`
            from mmhash_service.http.gateway import create_gateway  # noqa: PLC0415
            from mmhash_service.server import server  # noqa: PLC0415

    fleet = _fleet(worker, worker_dns, worker_file, policy)
    options = {"host": host, "port": port, "uds": uds, "processes": processes}
    effective, gateway = _read_settings(config, settings, options, fleet)
    _read_workers(gateway, check=check)  # reports wrong ones before the server starts
    if check:
        _check_workers(effective, gateway)
        return
    server.serve(effective, partial(create_gateway, gateway=gateway))


def run_picker(
    *,
    worker: Workers = None,
    worker_dns: WorkerDns = None,
    worker_file: WorkerFile = None,
    policy: PolicyName = None,
    host: Host = None,
    port: Port = None,
    processes: Processes = None,
    config: Config = None,
    settings: Set = None,
    check: GatewayCheck = False,
) -> None:
    """Choose workers for Envoy, as the gateway does."""
    with needs_extra("envoy"):
        import grpc_health  # noqa: F401, PLC0415  (may be missing)

        from mmhash_service.gateway.worker_spec import endpoint_of  # noqa: PLC0415

        if not check:  # as for `serve`
            from mmhash_service.picker.app import create_picker  # noqa: PLC0415
            from mmhash_service.server import server  # noqa: PLC0415

    fleet = _fleet(worker, worker_dns, worker_file, policy)
    options = {"host": host, "port": port, "processes": processes}
    effective, gateway = _read_settings(config, settings, options, fleet)
    if effective.uds is not None:
        raise InputValueError("settings: uds: Envoy reaches the picker by host and port")
    for one in _read_workers(gateway, check=check):
        if endpoint_of(one.url) is None:
            raise InputValueError(
                f"worker {one.url}: Envoy knows workers by their addresses. Give the IP address, "
                "or the host name with --worker-dns"
            )
    if check:
        _check_workers(effective, gateway)
        return
    server.serve(effective, partial(create_picker, gateway=gateway), binds=True)


def _fleet(
    worker: list[str] | None, worker_dns: str | None, worker_file: Path | None, policy: str | None
) -> dict[str, Any]:
    return {
        "worker_list": tuple(worker) if worker else None,
        "worker_dns": worker_dns,
        "worker_file": worker_file,
        "policy": policy,
    }


def _read_settings(
    config: Path | None,
    settings: list[str] | None,
    options: dict[str, Any],
    fleet: dict[str, Any] | None = None,
) -> "tuple[Settings, GatewaySettings]":
    """Return the settings of the server and of the gateway.

    Options override `--set`, which overrides variables and the file.
    """
    from mmhash_service.base_settings import settings_errors  # noqa: PLC0415  (may be missing)
    from mmhash_service.gateway.settings import GatewaySettings  # noqa: PLC0415
    from mmhash_service.settings import Settings  # noqa: PLC0415

    if config is not None:
        if not config.is_file():
            raise InputValueError(f"--config {config}: not a file")
        os.environ["MMHASH_CONFIG"] = str(config)  # for every process
    own = [text.removeprefix(_GATEWAY) for text in settings or () if text.startswith(_GATEWAY)]
    others = [text for text in settings or () if not text.startswith(_GATEWAY)]
    with settings_errors():
        assigned = dict(GatewaySettings.parse_assignment(text, _GATEWAY) for text in own)
        gateway = GatewaySettings(**_merged(assigned, fleet or {}))
        assigned = dict(map(Settings.parse_assignment, others))
        return Settings(**_merged(assigned, options)), gateway


def _read_workers(gateway: "GatewaySettings", *, check: bool) -> "list[WorkerSpec]":
    """Return the workers that are known at the start."""
    from mmhash_service.base_settings import settings_errors  # noqa: PLC0415  (may be missing)
    from mmhash_service.gateway.sources import read_workers  # noqa: PLC0415

    if not gateway.has_workers:
        raise InputValueError("no workers: name them with --worker, --worker-dns or --worker-file")
    if not check and gateway.worker_dns:  # workers may come later
        return []
    with settings_errors():
        return asyncio.run(read_workers(gateway))


def _check_workers(settings: Any, gateway: Any) -> None:
    """Print each worker with its problems; exit with status 1 if any worker has a problem."""
    from mmhash_service.gateway.check import check_workers  # noqa: PLC0415  (slow)
    from mmhash_service.models import Models  # noqa: PLC0415
    from mmhash_service.server.check import check_resources  # noqa: PLC0415

    _say_facts(check_resources(settings))
    models = Models(settings.models)
    workers = asyncio.run(check_workers(gateway, models))
    for worker in workers:
        say(f"worker {worker.url}: {worker.engine or 'unknown engine'}, events={worker.events}")
        for problem in worker.problems:
            say(f"  {problem}")
    if any(worker.problems for worker in workers):
        raise typer.Exit(1)


def _say_facts(facts: dict[str, Any]) -> None:
    shown = facts | {"models": ", ".join(facts["models"]) or "none"}
    say("; ".join(f"{name}: {value}" for name, value in shown.items()))


def _merged(assigned: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of `--set`, overridden by the options on the command line."""
    return assigned | {name: value for name, value in options.items() if value is not None}
