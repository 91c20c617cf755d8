"""`mmhash gateway`: start the reverse proxy of mmhash_service."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mmhash.cli.extras import extra
from mmhash.cli.server_settings import (
    AsJson,
    Check,
    Config,
    Host,
    Port,
    Uds,
    Workers,
    refuse_json,
    say_facts,
    use_config,
    with_options,
)
from mmhash.errors import InputValueError

# Before the name of a setting of the gateway in `--set`.
_GATEWAY = "gateway."


def run_gateway(
    *,
    worker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL,events=tcp://HOST:PORT,replay=…,engine=vllm@0.32.0",
            help="A worker; repeat the option for more.",
        ),
    ] = None,
    worker_dns: Annotated[
        str | None,
        typer.Option(metavar="URL,…", help="A worker at each address of the URL's host name."),
    ] = None,
    worker_file: Annotated[
        Path | None, typer.Option(help="A file with a worker in each line.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="longest-prefix, least-load, round-robin, consistent-hash.")
    ] = None,
    host: Host = None,
    port: Port = None,
    uds: Uds = None,
    workers: Workers = None,
    config: Config = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any setting of docs/settings.md, or with gateway.NAME of docs/gateway.md; of "
            "several for one setting, the last counts.",
        ),
    ] = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Forward requests to vLLM and SGLang workers, each to the one that has its prefix cached."""
    with extra("service"):
        from mmhash_service.base_settings import settings_errors  # noqa: PLC0415
        from mmhash_service.gateway.settings import GatewaySettings  # noqa: PLC0415  (may be missing)
        from mmhash_service.gateway.sources import read_workers  # noqa: PLC0415
        from mmhash_service.server.check import check_resources  # noqa: PLC0415
        from mmhash_service.settings import Settings  # noqa: PLC0415

        if not check:  # as in serve.py
            from mmhash_service.gateway.app import create_gateway  # noqa: PLC0415
            from mmhash_service.server import server  # noqa: PLC0415

    refuse_json(as_json=as_json, check=check)
    use_config(config)
    fleet = {
        "worker_list": tuple(worker) if worker else None,
        "worker_dns": worker_dns,
        "worker_file": worker_file,
        "policy": policy,
    }
    options = {"host": host, "port": port, "uds": uds, "workers": workers}
    own = [text.removeprefix(_GATEWAY) for text in settings or () if text.startswith(_GATEWAY)]
    others = [text for text in settings or () if not text.startswith(_GATEWAY)]
    with settings_errors():
        assigned = dict(GatewaySettings.parse_assignment(text, _GATEWAY) for text in own)
        gateway = GatewaySettings(**with_options(assigned, fleet))
        assigned = dict(map(Settings.parse_assignment, others))
        effective = Settings(**with_options(assigned, options))
        gateway.check_releases(effective.engine_fallback)
    if not gateway.has_workers:
        raise InputValueError("no workers: name them with --worker, --worker-dns or --worker-file")
    found = []
    if check or gateway.worker_file:  # the addresses of worker_dns may come later
        with settings_errors():
            found = asyncio.run(read_workers(gateway, effective.engine_fallback))
    if not check:
        server.serve(effective, partial(create_gateway, gateway=gateway))
        return
    say_facts(check_resources(effective) | {"workers": len(found)}, as_json=as_json)
