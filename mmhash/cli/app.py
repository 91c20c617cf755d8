"""The list of commands: to add a command, write a module in this package and a line here.

A command's module is imported only when the command runs, so `mmhash --help` stays fast.
"""

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from mmhash import __version__


class _Command(NamedTuple):
    """The module of a command, its function, and the first line of the function's docstring."""

    module: str
    function: str
    help: str


COMMANDS = {
    "key": _Command(
        "key",
        "key_files",
        "Print the key of each file or safetensors tensor.",
    ),
    "bulk": _Command(
        "bulk",
        "key_bulk",
        "Write the keys of many files or rows to Parquet files.",
    ),
    "explain": _Command(
        "explain",
        "explain_image",
        "Show the steps from an image to its hashes in an engine.",
    ),
    "plan": _Command(
        "plan",
        "plan_request",
        "Show the tokens, items and blocks of a prompt.",
    ),
    "serve": _Command(
        "serve",
        "serve",
        "Serve keys and plans over HTTP until stopped.",
    ),
    "gateway": _Command(
        "serve",
        "run_gateway",
        "Route each request to the worker with most of it cached.",
    ),
    "picker": _Command(
        "serve",
        "run_picker",
        "Choose workers for Envoy, as the gateway does.",
    ),
    "health": _Command("health", "check_health", "Check a server: exit with 0 if it answers 200."),
    "env": _Command("env", "print_env", "Print versions, cores and GPUs, one per line."),
    "verify-engine": _Command(
        "verify_engine",
        "check_engine",
        "Compare the KV events of a running engine with its recipe.",
    ),
}


class _LazyGroup(TyperGroup):
    """The commands. Listing a command does not import its module or show its options."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (the method of click)
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  (as above)
        command = COMMANDS.get(cmd_name)
        return None if command is None else TyperCommand(cmd_name, help=command.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load_command(name), rest


def load_command(name: str) -> Any:
    """Import the module of a command, with its arguments and options."""
    command = COMMANDS[name]
    module = import_module(f"mmhash.cli.{command.module}")
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(getattr(module, command.function))
    return typer.main.get_command(single)


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's boxes would make the help three times as long
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},  # as b3sum
)


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
