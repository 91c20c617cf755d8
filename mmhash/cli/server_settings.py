"""The options and errors of settings, shared by `mmhash serve` and `mmhash gateway`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mmhash.cli.report import say, say_json
from mmhash.errors import InputValueError

Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default="MMHASH_HOST")]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port to listen on.", show_default="MMHASH_PORT"),
]
Uds = Annotated[
    Path | None,
    typer.Option(help="Unix socket to listen on instead.", show_default="MMHASH_UDS"),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Number of processes.", show_default="MMHASH_WORKERS"),
]
Config = Annotated[
    Path | None,
    typer.Option(help="TOML file with settings of the service.", show_default="MMHASH_CONFIG"),
]


Check = Annotated[
    bool,
    typer.Option("--check", help="Check settings, models and the memo's store, and exit."),
]
AsJson = Annotated[bool, typer.Option("--json", help="With --check: print the result as JSON.")]


def refuse_json(*, as_json: bool, check: bool) -> None:
    """Refuse --json without --check."""
    if as_json and not check:
        raise typer.BadParameter("the server's log has its own format", param_hint="'--json'")


def say_facts(facts: dict[str, Any], *, as_json: bool) -> None:
    """Print what was checked."""
    if as_json:
        say_json(facts)
        return
    shown = facts | {"models": ", ".join(facts["models"]) or "none"}
    say("; ".join(f"{name}: {value}" for name, value in shown.items()))


def use_config(path: Path | None) -> None:
    """Have the settings read this file, in every process."""
    if path is None:
        return
    if not path.is_file():
        raise InputValueError(f"--config {path}: not a file")
    os.environ["MMHASH_CONFIG"] = str(path)


def with_options(assigned: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return settings of `--set`, overridden by the options that were given."""
    return assigned | {name: value for name, value in options.items() if value is not None}
