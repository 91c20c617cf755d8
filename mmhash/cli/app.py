"""The list of commands: a new command is a module of this package and a line here."""

from typing import Annotated

import typer

from mmhash import __version__
from mmhash.cli.bulk import key_bulk
from mmhash.cli.check import check_files
from mmhash.cli.env import print_env
from mmhash.cli.explain import explain_image
from mmhash.cli.gateway import run_gateway
from mmhash.cli.health import check_health
from mmhash.cli.key import key_files
from mmhash.cli.plan import plan_request
from mmhash.cli.serve import serve
from mmhash.cli.sum import sum_files
from mmhash.cli.verify_engine import check_engine

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

app.command("sum")(sum_files)
app.command("check")(check_files)
app.command("key")(key_files)
app.command("bulk")(key_bulk)
app.command("explain")(explain_image)
app.command("plan")(plan_request)
app.command("serve")(serve)
app.command("gateway")(run_gateway)
app.command("health")(check_health)
app.command("env")(print_env)
app.command("verify-engine")(check_engine)


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"mmhash {__version__}")  # noqa: T201
        raise typer.Exit


@app.callback()
def _mmhash(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Same content, same key: on the CPU, on the GPU, in the gateway, in the engine."""
