"""Arguments and options that several commands share."""

from typing import Annotated

import typer

Files = Annotated[
    list[str] | None,
    typer.Argument(help="Files to read; - or none for standard input.", show_default=False),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Number of threads for one file.", show_default="all cores"),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="No progress bar, and no line for files that are OK.")
]
