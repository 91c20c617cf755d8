"""The options and errors of settings, shared by `mmhash serve` and `mmhash gateway`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def settings_errors() -> Iterator[None]:
    """Replace the errors of settings by one line that names them."""
    from pydantic import ValidationError  # noqa: PLC0415  (may not be installed)
    from pydantic_settings import SettingsError  # noqa: PLC0415

    from mmhash_service.settings import Settings, form_hint  # noqa: PLC0415

    try:
        yield
    except ValidationError as error:
        # Without the values: a setting may be a secret.
        details = [_detail(dict(one)) for one in error.errors()]
        raise InputValueError(f"settings: {'; '.join(details)}") from error
    except RecursionError as error:
        raise InputValueError("settings: a value is nested too deep") from error
    except SettingsError as error:  # of a variable that is not JSON
        name = next((each for each in Settings.model_fields if f'"{each}"' in str(error)), "")
        reason = f"{name}: not JSON{form_hint(name)}" if name else str(error)
        raise InputValueError(f"settings: {reason}") from error
    except ValueError as error:
        raise InputValueError(f"settings: {error}") from error


def _detail(error: dict[str, Any]) -> str:
    """Return one error of pydantic's, with the form of a setting that has one."""
    from mmhash_service.settings import (  # noqa: PLC0415  (may not be installed)
        Settings,
        form_hint,
        unknown_name_message,
    )

    name = str(error["loc"][0]) if len(error["loc"]) == 1 else ""
    if name and error["type"] == "extra_forbidden":  # of the file
        return unknown_name_message(name, list(Settings.model_fields))
    reason = f"{error['msg'].removeprefix('Value error, ')}{form_hint(name)}"
    # An error of several settings has no path.
    return ": ".join(filter(None, (".".join(map(str, error["loc"])), reason)))
