"""The list of commands: a new command is a module of this package and a line here.

A command's module is imported when the command runs: `mmhash --help` takes 0.14 s, and with all of
them it took 0.65.
"""

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from mmhash import __version__
from mmhash.cli.extras import end_imports
from mmhash.cli.values import PlainCommand, PlainGroup


class _Command(NamedTuple):
    """The module of a command, its function, and the first line of the function's docstring."""

    module: str
    function: str
    help: str


COMMANDS = {
    "key": _Command(
        "key",
        "key_files",
        "Print the key of each file's content; for a .safetensors file, the key of each tensor.",
    ),
    "bulk": _Command(
        "bulk",
        "key_bulk",
        "Write the key of each item of SOURCE; the same command resumes a run that was killed.",
    ),
    "explain": _Command(
        "explain",
        "explain_image",
        "Show the steps from an image to its key, and from the key to an engine's hashes.",
    ),
    "plan": _Command(
        "plan",
        "plan_request",
        "Show a request's prompt as an engine will have it: its tokens, items and block keys.",
    ),
    "serve": _Command(
        "serve",
        "serve",
        "Serve HTTP until stopped; options override MMHASH_… variables, which override the file.",
    ),
    "gateway": _Command(
        "gateway",
        "run_gateway",
        "Forward requests to vLLM and SGLang workers, each to the one that has its prefix cached.",
    ),
    "health": _Command(
        "health", "check_health", "Check the server; the exit status is 0 if it responds with 200."
    ),
    "env": _Command("env", "print_env", "Print versions, cores and GPUs, one per line."),
    "verify-engine": _Command(
        "verify_engine",
        "check_engine",
        "Send a few prompts to a running engine and compare its KV events with the recipe.",
    ),
}


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
    single = typer.Typer(add_completion=False)
    single.command(name, cls=PlainCommand)(getattr(module, command.function))
    return typer.main.get_command(single)


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
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
