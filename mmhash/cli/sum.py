"""`mmhash sum`: the digest of each file, as b3sum prints it."""

from collections.abc import Iterator
from typing import Annotated

import typer

from mmhash.cli.content import hash_named_file
from mmhash.cli.options import AsJson, Files, Quiet, Threads
from mmhash.cli.report import Hashed, print_lines
from mmhash.digest import Algorithm


def sum_files(
    files: Files = None,
    *,
    algorithm: Annotated[Algorithm, typer.Option(help="The hash algorithm.")] = "blake3",
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    check: Annotated[bool, typer.Option("--check", "-c", hidden=True)] = False,
) -> None:
    """Print the digest of each file's bytes, which `check` reads back."""
    if check:  # as b3sum has it
        raise typer.BadParameter("sum files are read by `mmhash check`", param_hint="'--check'")

    def digest_of(name: str) -> Iterator[Hashed]:
        digest, nbytes = hash_named_file(name, algorithm, threads, quiet=quiet)
        fields = {"algorithm": algorithm, "nbytes": nbytes, "digest": digest.hex()}
        yield Hashed(name, [digest.hex()], fields)

    print_lines(files, digest_of, as_json=as_json)
