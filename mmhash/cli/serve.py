"""`mmhash serve`: start the HTTP service of mmhash_service."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mmhash.cli.extras import extra
from mmhash.errors import InputValueError


def serve(
    *,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="MMHASH_HOST")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on.", show_default="MMHASH_PORT"),
    ] = None,
    uds: Annotated[
        Path | None,
        typer.Option(help="Unix socket to listen on instead.", show_default="MMHASH_UDS"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes.", show_default="MMHASH_WORKERS"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with settings.", show_default="MMHASH_CONFIG"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of docs/settings.md."),
    ] = None,
) -> None:
    """Serve HTTP until stopped; options override MMHASH_… variables, which override the file."""
    with extra("service"):
        from pydantic import ValidationError  # noqa: PLC0415  (may not be installed)
        from pydantic_settings import SettingsError  # noqa: PLC0415

        from mmhash_service.server import server  # noqa: PLC0415
        from mmhash_service.settings import Settings, parse_assignment  # noqa: PLC0415

    if config is not None:
        os.environ["MMHASH_CONFIG"] = str(config)
    named = {"host": host, "port": port, "uds": uds, "workers": workers}
    try:
        assigned: dict[str, Any] = dict(map(parse_assignment, settings or ()))
        assigned |= {name: value for name, value in named.items() if value is not None}
        effective = Settings(**assigned)
    except ValidationError as error:
        # Without the values: a setting may be a secret.
        details = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise InputValueError(f"settings: {'; '.join(details)}") from error
    except RecursionError as error:
        raise InputValueError("settings: a value is nested too deep") from error
    except (SettingsError, ValueError) as error:
        raise InputValueError(f"settings: {error}") from error
    server.serve(effective)
