"""`mmhash gateway`: start the reverse proxy of mmhash_service."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mmhash.cli.extras import extra
from mmhash.errors import InputValueError


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
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="MMHASH_HOST")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on.", show_default="MMHASH_PORT"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with settings of the service.", show_default="MMHASH_CONFIG"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any setting of docs/settings.md, or with gateway.NAME of docs/gateway.md.",
        ),
    ] = None,
) -> None:
    """Forward requests to vLLM and SGLang workers, each to the one that has its prefix cached."""
    with extra("service"):
        from pydantic import ValidationError  # noqa: PLC0415  (may not be installed)
        from pydantic_settings import SettingsError  # noqa: PLC0415

        from mmhash_service.gateway.app import create_gateway  # noqa: PLC0415
        from mmhash_service.gateway.settings import GatewaySettings  # noqa: PLC0415
        from mmhash_service.server import server  # noqa: PLC0415
        from mmhash_service.settings import Settings, parse_assignment  # noqa: PLC0415

    if config is not None:
        os.environ["MMHASH_CONFIG"] = str(config)
    named = {"host": host, "port": port}
    fleet = {
        "worker_list": tuple(worker) if worker else None,
        "worker_dns": worker_dns,
        "worker_file": worker_file,
        "policy": policy,
    }
    prefix = "gateway."
    own = [text.removeprefix(prefix) for text in settings or () if text.startswith(prefix)]
    others = [text for text in settings or () if not text.startswith(prefix)]
    try:
        gateway = GatewaySettings(
            **_merge(dict(parse_assignment(text, GatewaySettings) for text in own), fleet)
        )
        effective = Settings(**_merge(dict(map(parse_assignment, others)), named))
    except ValidationError as error:
        # Without the values: a setting may be a secret.
        details = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise InputValueError(f"settings: {'; '.join(details)}") from error
    except RecursionError as error:
        raise InputValueError("settings: a value is nested too deep") from error
    except (SettingsError, ValueError) as error:
        raise InputValueError(f"settings: {error}") from error
    if not gateway.has_workers:
        raise InputValueError("no workers: name them with --worker, --worker-dns or --worker-file")
    server.serve(effective, partial(create_gateway, gateway=gateway))


def _merge(assigned: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    return assigned | {name: value for name, value in named.items() if value is not None}
