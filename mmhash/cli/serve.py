"""`mmhash serve`: start the HTTP service of mmhash_service."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mmhash.cli.extras import extra
from mmhash.cli.report import say, say_json
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
    check: Annotated[
        bool,
        typer.Option("--check", help="Check settings, models and the memo's store, and exit."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --check: print the result as JSON.")
    ] = False,
) -> None:
    """Serve HTTP until stopped; options override MMHASH_… variables, which override the file."""
    with extra("service"):
        from pydantic import ValidationError  # noqa: PLC0415  (may not be installed)
        from pydantic_settings import SettingsError  # noqa: PLC0415

        from mmhash_service.server import server  # noqa: PLC0415
        from mmhash_service.server.check import check_resources  # noqa: PLC0415
        from mmhash_service.settings import Settings, form_hint, parse_assignment  # noqa: PLC0415

    if as_json and not check:
        raise typer.BadParameter("the server's log has its own format", param_hint="--json")
    if config is not None:
        os.environ["MMHASH_CONFIG"] = str(config)
    named = {"host": host, "port": port, "uds": uds, "workers": workers}
    try:
        assigned: dict[str, Any] = dict(map(parse_assignment, settings or ()))
        assigned |= {name: value for name, value in named.items() if value is not None}
        effective = Settings(**assigned)
    except ValidationError as error:
        # Without the values: a setting may be a secret.
        details = [
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
            + (form_hint(str(one["loc"][0])) if len(one["loc"]) == 1 else "")
            for one in error.errors()
        ]
        raise InputValueError(f"settings: {'; '.join(details)}") from error
    except RecursionError as error:
        raise InputValueError("settings: a value is nested too deep") from error
    except SettingsError as error:  # of a variable that is not JSON
        name = next((each for each in Settings.model_fields if f'"{each}"' in str(error)), "")
        reason = f"{name}: not JSON{form_hint(name)}" if name else str(error)
        raise InputValueError(f"settings: {reason}") from error
    except ValueError as error:
        raise InputValueError(f"settings: {error}") from error
    if not check:
        server.serve(effective)
        return
    facts = check_resources(effective)
    if as_json:
        say_json(facts)
    else:
        say("; ".join(f"{name}: {value}" for name, value in facts.items()))
