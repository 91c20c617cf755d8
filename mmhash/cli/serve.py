"""`mmhash serve`: the HTTP front end, which lives in mmhash_service."""

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
) -> None:
    """Answer over HTTP until stopped; all other settings come from MMHASH_… variables."""
    with extra("service"):
        from pydantic import ValidationError  # noqa: PLC0415  (need not be installed)

        from mmhash_service import app  # noqa: PLC0415
        from mmhash_service.settings import Settings  # noqa: PLC0415

    asked: dict[str, Any] = {"host": host, "port": port}
    try:
        settings = Settings(**{name: value for name, value in asked.items() if value is not None})
    except ValidationError as error:
        # Without the values: a setting may be a secret.
        wrong = [f"{'.'.join(map(str, at['loc']))}: {at['msg']}" for at in error.errors()]
        raise InputValueError(f"settings: {'; '.join(wrong)}") from error
    app.serve(settings)
