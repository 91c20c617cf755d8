"""`mmhash serve`: the HTTP front end, which lives in mmhash_service."""

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
        typer.Option(min=1, help="Processes that answer.", show_default="MMHASH_WORKERS"),
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
    """Answer over HTTP until stopped; options go before MMHASH_… variables, then comes the file."""
    with extra("service"):
        from pydantic import ValidationError  # noqa: PLC0415  (need not be installed)
        from pydantic_settings import SettingsError  # noqa: PLC0415

        from mmhash_service.server import server  # noqa: PLC0415
        from mmhash_service.settings import Settings, parse_assignment  # noqa: PLC0415

    if config is not None:
        os.environ["MMHASH_CONFIG"] = str(config)
    named = {"host": host, "port": port, "uds": uds, "workers": workers}
    try:
        asked: dict[str, Any] = dict(map(parse_assignment, settings or ()))
        asked |= {name: value for name, value in named.items() if value is not None}
        chosen = Settings(**asked)
    except ValidationError as error:
        # Without the values: a setting may be a secret.
        wrong = [f"{'.'.join(map(str, at['loc']))}: {at['msg']}" for at in error.errors()]
        raise InputValueError(f"settings: {'; '.join(wrong)}") from error
    except RecursionError as error:
        raise InputValueError("settings: a value is nested too deep") from error
    except (SettingsError, ValueError) as error:
        raise InputValueError(f"settings: {error}") from error
    server.serve(chosen)
