"""`mmhash verify-engine`: checks that a running engine names blocks as mmhash does."""

from typing import Annotated

import typer

from mmhash.cli.options import AsJson, Seed
from mmhash.cli.report import say, say_json
from mmhash.extras import needs_extra


def check_engine(
    url: Annotated[str, typer.Argument(help="The engine's address, http://HOST:PORT.")],
    *,
    events: Annotated[str, typer.Option(help="The engine's KV event endpoint, tcp://HOST:PORT.")],
    engine: Annotated[
        str | None,
        typer.Option(help="The engine and its release: vllm@0.32.0.", show_default="the server's"),
    ] = None,
    seed: Seed = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="MMHASH_ENGINE_API_KEY", help="The engine's API key.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the KV events of a running engine with its recipe."""
    with needs_extra("kvindex"):
        from mmhash.verify import verify_engine  # noqa: PLC0415  (needs pyzmq and httpx)
    report = verify_engine(url, events, engine=engine, seed=seed, api_key=api_key)
    if as_json:
        say_json(report.fields())
    else:
        say(report.line())
    if not report.is_correct:
        raise typer.Exit(1)
