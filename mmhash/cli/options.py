"""Options that several commands share."""

from typing import Annotated, Literal

import typer

from mmhash.digest import Algorithm

Of = Annotated[
    Literal["bytes", "pixels"],
    typer.Option(help="Hash the bytes of files, or the pixels of images."),
]
DigestAlgorithm = Annotated[Algorithm, typer.Option(help="The hash algorithm.")]
Engine = Annotated[str, typer.Option(help="The engine and its release: vllm@0.32.0.")]
Engines = Annotated[
    list[str] | None,
    typer.Option(metavar="<str>", help="Add the key for this engine: vllm@0.32.0; repeatable."),
]
Seed = Annotated[str | None, typer.Option(help="vLLM's PYTHONHASHSEED.", show_default="not set")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
