"""`mmhash plan`: plans a request from a model's directory, without a service."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mmhash.cli.options import AsJson, Engine, Of, Seed
from mmhash.cli.report import format_count, say, say_json
from mmhash.errors import InputValueError
from mmhash.extras import needs_extra
from mmhash.io.files import open_file
from mmhash.io.names import printable, reason


def plan_request(
    model: Annotated[Path, typer.Argument(help="The model's directory.")],
    request: Annotated[str, typer.Argument(help="A JSON file with an OpenAI or SGLang request.")],
    *,
    engine: Engine,
    block_size: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens per block.", show_default="the engine's"),
    ] = None,
    block_algorithm: Annotated[
        str | None,
        typer.Option(help="vLLM's --prefix-caching-hash-algo.", show_default="sha256"),
    ] = None,
    seed: Seed = None,
    of: Of = "bytes",
    as_json: AsJson = False,
) -> None:
    """Show the tokens, items and blocks of a prompt.

    Nothing is sent to an engine: the model's directory is enough.
    """
    with needs_extra("prompts"):
        from mmhash.prompts import Model  # noqa: PLC0415  (needs tokenizers and jinja2)

    try:
        with open_file(request) as file:
            text = file.read()
    except OSError as error:
        raise InputValueError(f"{printable(request)}: {reason(error)}") from error
    plan = Model.load(model).plan(
        text, engine, block_size=block_size, block_algorithm=block_algorithm, seed=seed, of=of
    )
    items = [
        {**item.payload(), "key": item.key.hex(), "engines": {engine: item.fields}}
        for item in plan.items
    ]
    if as_json:
        say_json(plan.payload(items))
        return
    _show(len(plan.token_ids), items, plan.blocks)


def _show(tokens: int, items: list[dict[str, Any]], blocks: list[str]) -> None:
    counts = (tokens, "token"), (len(items), "item"), (len(blocks), "block")
    say(", ".join(format_count(*one) for one in counts))
    for number, item in enumerate(items, 1):
        place = f"{item['start']}-{item['end'] - 1}"
        size = f"{item['width']}x{item['height']}"
        say(f"  {item['modality']} {number:<4} {size:<11} tokens {place:<13} {item['key']}")
    for number, block in enumerate(blocks):
        say(f"  block {number:<4} {block}")
