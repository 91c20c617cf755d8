"""Arguments and options that several commands share."""

from typing import Annotated, Literal

import typer

Files = Annotated[
    list[str] | None,
    typer.Argument(help="Files to read; - or none for standard input.", show_default=False),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Number of threads for one file.", show_default="all cores"),
]
Of = Annotated[
    Literal["bytes", "pixels"],
    typer.Option(help="Hash the bytes of files, or the pixels of images."),
]
# engines.releases.Fallback, without 0.1 s of CPU to import the engines and numpy.
EngineFallback = Annotated[
    Literal["nearest-older"] | None,
    typer.Option(
        help="For an unknown release: use the newest known one before it.", show_default="refuse"
    ),
]
Seed = Annotated[str | None, typer.Option(help="vLLM's PYTHONHASHSEED, if it is set.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
