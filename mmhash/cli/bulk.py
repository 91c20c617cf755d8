"""`mmhash bulk`: the keys of very many files, or of a Parquet file's rows, as a Parquet file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import TextColumn

import mmhash
from mmhash.cli.extras import extra
from mmhash.cli.options import STDIN, Quiet
from mmhash.cli.progress import bytes_progress, is_watched
from mmhash.cli.report import complain, reason, say
from mmhash.cli.sumline import shown
from mmhash.cpu import cpu_count
from mmhash.digest import Algorithm
from mmhash.errors import InputValueError


def key_bulk(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder, a Parquet file, or a list of paths, one a line; - is stdin."
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="The Parquet file to write.", dir_okay=False)],
    column: Annotated[
        str | None, typer.Option(help="Of a Parquet file: its column of bytes, or of paths.")
    ] = None,
    of: Annotated[
        Literal["bytes", "pixels"], typer.Option(help="What of an image is its content.")
    ] = "bytes",
    algorithm: Annotated[Algorithm, typer.Option(help="The hash of the content.")] = "blake3",
    engine: Annotated[
        list[str] | None,
        typer.Option(help="Add the key as this engine has it: sglang@0.5.23, vllm; repeatable."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="How many processes hash.", show_default="all cores"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write the key of each item of SOURCE; the same command goes on with what was killed."""
    with extra("bulk"):
        from mmhash.bulk.results import count_results  # noqa: PLC0415  (need not be installed)
        from mmhash.bulk.run import hash_source  # noqa: PLC0415
        from mmhash.bulk.sources import read_source  # noqa: PLC0415
        from mmhash.bulk.work import Options  # noqa: PLC0415

    engines = dict.fromkeys("@".join(mmhash.engines.spelling.parse(name)) for name in engine or ())
    if (
        source != STDIN
        and Path(source).is_dir()
        and out.resolve().is_relative_to(Path(source).resolve())
    ):
        raise InputValueError(f"{out} would lie in the folder that is read: give another --out")
    try:
        found = read_source(source, column)
    except OSError as error:
        raise InputValueError(f"{shown(source)}: {reason(error)}") from error
    items = sum(len(shard.names) for shard in found.shards)
    nbytes = sum(shard.nbytes for shard in found.shards)
    with _bar(items, nbytes, quiet=quiet) as advance:
        hash_source(
            found, out, Options(algorithm, of, tuple(engines)), processes or cpu_count(), advance
        )
    items, errors = count_results(out)
    say(f"{shown(str(out))}: {items} items")
    if errors:
        complain(f"WARNING: {errors} of them could not be hashed: the column error says why")
        raise typer.Exit(1)


@contextmanager
def _bar(items: int, nbytes: int, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Give the function that takes how many items and bytes more are done."""
    if not is_watched(quiet=quiet):
        yield lambda *_: None
        return
    with bytes_progress(TextColumn("{task.fields[done]}/{task.fields[items]} items")) as progress:
        task = progress.add_task("", total=nbytes, items=items, done=0)
        done = 0

        def advance(more_items: int, more_bytes: int) -> None:
            nonlocal done
            done += more_items
            progress.update(task, advance=more_bytes, done=done)

        yield advance
