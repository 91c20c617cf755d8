"""The values of arguments and options: texts and choices as they are, all others by Typer."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from mmhash.cli.values import PlainCommand

Choice = Literal["blake3", "xxh3"]


def run(*arguments: str) -> Any:
    """The result of a command that has a value of each kind and returns them."""
    app = typer.Typer(add_completion=False)

    @app.command(cls=PlainCommand)
    def command(
        files: Annotated[list[str] | None, typer.Argument()] = None,
        text: str = "default",
        maybe: str | None = None,
        choice: Choice = "blake3",
        names: Annotated[list[str] | None, typer.Option("--name")] = None,
        number: Annotated[int | None, typer.Option(min=1, max=9)] = None,
        path: Path | None = None,
        flag: Annotated[bool, typer.Option("--flag")] = False,
    ) -> dict[str, Any]:
        return locals()

    return CliRunner().invoke(app, list(arguments), standalone_mode=False)


def test_all_values_that_are_not_given_are_the_defaults() -> None:
    assert run().return_value == {
        "files": None,
        "text": "default",
        "maybe": None,
        "choice": "blake3",
        "names": None,
        "number": None,
        "path": None,
        "flag": False,
    }


@pytest.mark.parametrize("text", ["", "7", "true", "none", "[1]", " x ", "\udcff"])
def test_a_text_is_used_as_it_is(text: str) -> None:
    done = run(text, "other", "--text", text, "--maybe", text, "--name", text, "--name", "x")
    values = done.return_value
    assert values["text"] == values["maybe"] == text
    assert (list(values["files"]), list(values["names"])) == ([text, "other"], [text, "x"])


def test_other_values_are_converted() -> None:
    values = run("--number", "7", "--path", "a/b", "--flag", "--choice", "xxh3").return_value
    assert (values["number"], values["path"], values["flag"]) == (7, Path("a/b"), True)
    assert values["choice"] == "xxh3"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--choice", "md5"), "is not one of 'blake3', 'xxh3'"),
        (("--choice", "BLAKE3"), "is not one of 'blake3', 'xxh3'"),
        (("--choice", ""), "is not one of 'blake3', 'xxh3'"),
        (("--number", "x"), "valid integer"),
        (("--number", "0"), "greater than or equal to 1"),
        (("--number", "10"), "less than or equal to 9"),
        (("--flag", "--flag=yes"), "does not take a value"),
        (("--text",), "requires an argument"),
    ],
)
def test_a_wrong_value_is_refused(arguments: tuple[str, ...], reason: str) -> None:
    error = run(*arguments).exception
    assert error.exit_code == 2
    assert reason in error.format_message()
