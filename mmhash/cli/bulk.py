"""`mmhash bulk`: the keys of very many files, or of a Parquet file's rows, as one file."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import mmhash
from mmhash.cli.extras import extra
from mmhash.cli.options import AsJson, EngineFallback, Of, Quiet
from mmhash.cli.progress import bytes_progress, is_watched
from mmhash.cli.report import complain, format_count, say, say_json
from mmhash.digest import Algorithm
from mmhash.errors import InputValueError
from mmhash.io.names import STDIN, printable
from mmhash.states import cpu_count

if TYPE_CHECKING:
    from rich.progress import Progress

    from mmhash.bulk.work import Shard


def key_bulk(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder, a Parquet file, or a list with one path per line; - is stdin."
        ),
    ],
    *,
    out: Annotated[
        str, typer.Option(metavar="<file>", help="The file to write: .parquet, .jsonl or .csv.")
    ],
    column: Annotated[
        str | None, typer.Option(help="The column of a Parquet file: bytes or paths.")
    ] = None,
    of: Of = "bytes",
    algorithm: Annotated[Algorithm, typer.Option(help="The hash algorithm.")] = "blake3",
    engine: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<str>",
            help="Add the key in this engine's format: sglang@0.5.23, vllm; repeatable.",
        ),
    ] = None,
    engine_fallback: EngineFallback = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of processes, or threads for large files.", show_default="all cores"
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write the key of each item of SOURCE; the same command resumes a run that was killed."""
    engines = _with_releases(engine, engine_fallback) if engine else ()
    is_folder = source not in {STDIN, ""} and Path(source).is_dir()
    _check_out(out, Path(source) if is_folder else None)
    with extra("bulk"):
        from mmhash.bulk.export import export, parquet_path  # noqa: PLC0415  (slow to import)
        from mmhash.bulk.pool import Pool  # noqa: PLC0415
        from mmhash.bulk.run import hash_source  # noqa: PLC0415
        from mmhash.bulk.sources import read_source  # noqa: PLC0415
        from mmhash.bulk.work import Options  # noqa: PLC0415

        # It is imported when the first shard is finished, while others are hashed.
        if find_spec("pyarrow") is None:
            raise ModuleNotFoundError(name="pyarrow")
    parquet = parquet_path(Path(out))
    items_source = read_source(source, column)
    options = Options(algorithm, of, engines, is_folder and of == "pixels")
    with (
        Pool(processes or cpu_count()) as pool,
        _bar(quiet=quiet) as watch,
        nullcontext() if engines or of != "bytes" else _without_numpy(),
    ):
        hash_source(items_source, parquet, options, pool, watch)
    from mmhash.bulk.tables import count_results  # noqa: PLC0415  (imported by the run)

    items, errors = count_results(parquet)
    skipped = watch.items - items
    export(parquet, Path(out))
    if as_json:
        say_json({"out": out, "items": items, "errors": errors, "skipped": skipped})
    else:
        others = f", {format_count(skipped, 'other file')} skipped: not images" if skipped else ""
        say(f"{printable(out)}: {format_count(items, 'item')}{others}")
    if errors:
        complain(f"WARNING: {errors} of them could not be hashed: see the column error")
        raise typer.Exit(1)


def _with_releases(engines: list[str], engine_fallback: EngineFallback) -> tuple[str, ...]:
    """Return the engines with their releases, each once; their modules take 30 ms of CPU."""
    parse = partial(mmhash.engines.registry.parse_with_fields, engine_fallback=engine_fallback)
    names = mmhash.engines.split_names(engines)
    return tuple(dict.fromkeys("@".join(parse(name)) for name in names))


def _check_out(out: str, folder: Path | None) -> None:
    """Check the name of the result before anything is hashed."""
    path = Path(out)
    if path.is_dir():
        raise InputValueError(f"{printable(out)}: a directory, not a file: give another --out")
    if not path.parent.is_dir():
        raise InputValueError(f"{printable(out)}: {os.strerror(errno.ENOENT)}")
    if folder is not None and path.resolve().is_relative_to(folder.resolve()):
        raise InputValueError(f"{printable(out)} is in the folder that is read: give another --out")


@contextmanager
def _without_numpy() -> Iterator[None]:
    """Keep pyarrow from importing numpy.

    That takes 0.06 s of CPU: a fifth of a run of three files (0.26 s, medians of 11 runs).
    pyarrow has worked without numpy since release 18, and has no option for that. Within the
    context each import of numpy in this process fails, in all threads: use it only for runs whose
    code imports none, which are those of bytes without engines.
    """
    if "numpy" in sys.modules:  # imported already, by pyarrow for rows
        yield
        return
    sys.modules["numpy"] = None  # type: ignore[assignment]  # the documented way to refuse it
    try:
        yield
    finally:
        del sys.modules["numpy"]


class _Bar:
    """The items and bytes that are listed and finished, and perhaps a progress bar of them."""

    def __init__(self, progress: "Progress | None") -> None:
        self._progress = progress
        self._task = progress.add_task("", total=0, items=0, done=0) if progress else None
        self.items = self._nbytes = self._done = 0

    def found(self, shard: "Shard") -> None:
        """Add a shard to the total."""
        self.items += len(shard.names)
        self._nbytes += shard.nbytes
        self._update(total=self._nbytes, items=self.items)

    def done(self, shard: "Shard") -> None:
        """Add a shard to the finished ones."""
        self._done += len(shard.names)
        self._update(advance=shard.nbytes, done=self._done)

    def _update(self, **fields: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, **fields)  # type: ignore[arg-type]

    def warn(self, line: str) -> None:
        """Report a damaged part, which is hashed again."""
        complain(f"WARNING: {printable(line)}")


@contextmanager
def _bar(*, quiet: bool) -> Iterator[_Bar]:
    if not is_watched(quiet=quiet):
        yield _Bar(None)
        return
    with bytes_progress("{task.fields[done]}/{task.fields[items]} items") as progress:
        yield _Bar(progress)
