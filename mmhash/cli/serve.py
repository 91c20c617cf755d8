"""`mmhash serve`: start the HTTP service of mmhash_service."""

from functools import partial
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


def serve(
    *,
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
            help="Any setting of docs/settings.md; of several for one setting, the last counts.",
        ),
    ] = None,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Serve HTTP until stopped; options override MMHASH_… variables, which override the file."""
    with extra("service"):
        from mmhash_service.base_settings import settings_errors  # noqa: PLC0415
        from mmhash_service.gateway.settings import GatewaySettings  # noqa: PLC0415  (may be missing)
        from mmhash_service.server.check import check_resources  # noqa: PLC0415
        from mmhash_service.settings import Settings  # noqa: PLC0415

        if not check:  # FastAPI, the engines and numpy: 0.3 of 0.5 s of CPU
            from mmhash_service.app import create_app  # noqa: PLC0415
            from mmhash_service.server import server  # noqa: PLC0415

    refuse_json(as_json=as_json, check=check)
    use_config(config)
    options = {"host": host, "port": port, "uds": uds, "workers": workers}
    with settings_errors():
        assigned = dict(map(Settings.parse_assignment, settings or ()))
        effective = Settings(**with_options(assigned, options))
        gateway = GatewaySettings()
        gateway.check_releases(effective.engine_fallback)
    if not check:
        server.serve(effective, partial(create_app, gateway=gateway))
        return
    say_facts(check_resources(effective), as_json=as_json)
