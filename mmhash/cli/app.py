"""The list of commands: a new command is a module of this package and a line here.

A command's module is imported when the command runs: `mmhash --help` takes 0.14 s, and with all of
them it took 0.65.
"""

from importlib import import_module
from typing import Annotated, Any, NamedTuple, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from mmhash import __version__
from mmhash.cli.extras import end_imports


class _Command(NamedTuple):
    """The module of a command, its function, and the first line of the function's docstring."""

    module: str
    function: str
    help: str


COMMANDS = {
    "key": _Command(
        "key",
        "key_files",
        "Print the key of each file, or of each tensor in .safetensors.",
    ),
    "bulk": _Command(
        "bulk",
        "key_bulk",
        "Write the keys of many files or rows; run it again to resume.",
    ),
    "explain": _Command(
        "explain",
        "explain_image",
        "Show the steps from an image to its hashes in an engine.",
    ),
    "plan": _Command(
        "plan",
        "plan_request",
        "Show a prompt as an engine will see it: tokens, items, blocks.",
    ),
    "serve": _Command(
        "serve",
        "serve",
        "Serve HTTP until stopped.",
    ),
    "gateway": _Command(
        "serve",
        "run_gateway",
        "Forward requests to the workers that have their prefix cached.",
    ),
    "health": _Command(
        "health", "check_health", "Check a server; exit with 0 if it responds with 200."
    ),
    "env": _Command("env", "print_env", "Print versions, cores and GPUs, one per line."),
    "verify-engine": _Command(
        "verify_engine",
        "check_engine",
        "Compare the KV events of a running engine with its recipe.",
    ),
}


class PlainCommand(TyperCommand):
    """A command whose texts and choices are used as they are given.

    Typer converts every value with pydantic, even None: half of the CPU of a short command.
    """

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters."""
        return _prepare(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands whose own texts and choices Typer does not convert."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters."""
        return _prepare(super().get_params(ctx))


def _prepare(parameters: list[Any]) -> list[Any]:
    """Have Typer convert values by `_Coercion`, and show flags without a value in the help."""
    for parameter in parameters:
        parameter.get_runtime_param = lambda: _Coercion  # Typer before 0.29 does not call it
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""  # <bool> otherwise, as if it took a value
    return parameters


class _Coercion:
    """The conversion of a value: Typer calls it in place of its own."""

    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind = param.type_descriptor.annotation
        if kind in (str, list[str]) or value in get_args(kind):  # the arguments of a Literal
            return value
        return type(param).get_runtime_param(param).coerce(value, param=param, ctx=ctx)


class _LazyGroup(PlainGroup):
    """The commands; one that is only listed has no options, and its module is not imported."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (the method of click)
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  (as above)
        command = COMMANDS.get(cmd_name)
        return None if command is None else PlainCommand(cmd_name, help=command.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = load_command(name)
        end_imports()
        return name, command, rest


def load_command(name: str) -> Any:
    """Import a command, with its arguments and options."""
    command = COMMANDS[name]
    module = import_module(f"mmhash.cli.{command.module}")
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, cls=PlainCommand)(getattr(module, command.function))
    return typer.main.get_command(single)


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # a help that fits a screen: the boxes of rich take three times as much
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
