"""The values of arguments and options: texts and choices are used as they are given.

Typer converts every value with pydantic, even None: 0.11 s of CPU, half of a short command.
"""

from typing import Any, get_args

from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    """A command whose texts and choices Typer does not convert."""

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
