"""`mmhash bulk`: writes the keys of many files, or of rows in a Parquet file, as Parquet files."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import mmhash
from mmhash.cli.options import AsJson, DigestAlgorithm, Engines, Of
from mmhash.cli.report import complain, format_count, say, say_json
from mmhash.errors import InputValueError
from mmhash.extras import needs_extra
from mmhash.io.names import STDIN, printable
from mmhash.states import cpu_count

if TYPE_CHECKING:
    from rich.progress import Progress

    from mmhash.bulk.shards import Shard


def key_bulk(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder, a Parquet file, or a list with one path per line; - is stdin."
        ),
    ],
    *,
    out: Annotated[str, typer.Option(help="The folder for the Parquet files to write.")],
    column: Annotated[
        str | None, typer.Option(help="The column of a Parquet file: bytes or paths.")
    ] = None,
    of: Of = "bytes",
    algorithm: DigestAlgorithm = "blake3",
    engine: Engines = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Number of processes.", show_default="all cores")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the keys of many files or rows to Parquet files.

    Run the same command again to resume a run.
    """
    engines = _with_releases(engine) if engine else ()
    is_folder = source not in {STDIN, ""} and Path(source).is_dir()
    if is_folder and Path(out).resolve().is_relative_to(Path(source).resolve()):
        raise InputValueError(f"{printable(out)} is in the folder that is read: give another --out")
    with needs_extra("bulk"):
        from mmhash.bulk.items import BulkOptions  # noqa: PLC0415  (slow to import)
        from mmhash.bulk.run import hash_source  # noqa: PLC0415
        from mmhash.bulk.sources import read_source  # noqa: PLC0415

        if find_spec("pyarrow") is None:  # the hashing processes import it
            raise ModuleNotFoundError(name="pyarrow")
    options = BulkOptions(algorithm, of, engines, is_folder and of == "pixels")
    shards = read_source(source, column)
    about = {"source": source, "column": column or ""}
    with _bar() as watch:
        items, errors = hash_source(
            shards, Path(out), options, about, processes=processes or cpu_count(), watch=watch
        )
    skipped = watch.items - items
    if as_json:
        say_json({"out": out, "items": items, "errors": errors, "skipped": skipped})
    else:
        others = f", {format_count(skipped, 'other file')} skipped: not images" if skipped else ""
        say(f"{printable(out)}: {format_count(items, 'item')}{others}")
    if errors:
        failed = format_count(errors, "item")
        complain(f"WARNING: {failed} could not be hashed: see the column error")
        raise typer.Exit(1)


def _with_releases(engines: list[str]) -> tuple[str, ...]:
    """Return the engines with their releases, each once."""
    parse = mmhash.engines.registry.parse
    names = mmhash.engines.split_names(engines)
    return tuple(dict.fromkeys("@".join(parse(name)) for name in names))


class _Bar:
    """Counts of items and bytes, listed and finished, with a progress bar if enabled."""

    def __init__(self, progress: "Progress | None") -> None:
        self._progress = progress
        self._task = progress.add_task("", total=0, items=0, done=0) if progress else None
        self.items = self._done = self._nbytes = self._done_nbytes = 0

    def found(self, shard: "Shard") -> None:
        """Add a shard to the total."""
        self.items += len(shard.names)
        self._nbytes += shard.nbytes
        self._update()

    def done(self, shard: "Shard") -> None:
        """Add a shard to the finished shards."""
        self._done += len(shard.names)
        self._done_nbytes += shard.nbytes
        self._update()

    def _update(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(
                self._task,
                total=self._nbytes,
                completed=self._done_nbytes,
                items=self.items,
                done=self._done,
            )


@contextmanager
def _bar() -> Iterator[_Bar]:
    """Yield the counts, with a progress bar only if stderr is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield _Bar(None)
        return
    from rich.console import Console  # noqa: PLC0415  (slow to import)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.fields[done]}/{task.fields[items]} items", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=console.is_dumb_terminal,
        transient=True,
    ) as progress:
        yield _Bar(progress)
