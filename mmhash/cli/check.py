"""`mmhash check`: compare files with the digests in a sum file."""

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Annotated

import typer

from mmhash.cli.content import hash_named_file
from mmhash.cli.options import AsJson, Files
from mmhash.cli.report import complain, say, say_json
from mmhash.cli.sumline import parse_line
from mmhash.digest import Digest
from mmhash.errors import InputValueError, MMHashError
from mmhash.io.files import open_file
from mmhash.io.names import STDIN, printable, reason

# A digest and a path of 4096 bytes, each of them escaped, and some reserve.
MAX_LINE = 16 * 1024


class _Outcome(Enum):
    """The result of one line of a sum file; the value is the text of the summary."""

    MATCH = ""
    MISMATCH = "computed checksum{s} did NOT match"
    UNREADABLE = "listed file{s} could not be read"
    MALFORMED = "malformed line{s}"


def check_files(
    files: Files = None,
    *,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress bar, and no line for files that are OK.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the files that are listed in sum files, as written by `sum` or b3sum."""
    outcomes: Counter[_Outcome] = Counter()
    failed = False
    for name in files or [STDIN]:
        try:
            outcomes.update(_check_sums(name, quiet=quiet, as_json=as_json))
        except MMHashError as error:
            complain(f"{printable(name)}: {error}")
            failed = True
    for outcome in _Outcome:
        count = outcomes[outcome]
        if outcome is not _Outcome.MATCH and count:
            complain(f"WARNING: {count} {outcome.value.format(s='s' if count > 1 else '')}")
            failed = True
    if failed:
        raise typer.Exit(1)


def _check_sums(sum_file: str, *, quiet: bool, as_json: bool) -> Iterator[_Outcome]:
    has_checksum = False
    for number, line in enumerate(_read_lines(sum_file), 1):
        try:
            expected, name = parse_line(line)
        except InputValueError as error:
            complain(f"{printable(sum_file)}: line {number}: {error}")
            yield _Outcome.MALFORMED
        else:
            has_checksum = True
            outcome, why = _check_file(name, expected, quiet=quiet)
            _report(name, outcome, why, quiet=quiet, as_json=as_json)
            yield outcome
    if not has_checksum:
        raise InputValueError("no line of it is a checksum")


def _check_file(name: str, expected: Digest, *, quiet: bool) -> tuple[_Outcome, str | None]:
    """Return the outcome for a file, and the reason if it cannot be read."""
    try:
        digest, _ = hash_named_file(name, expected.algorithm, None, quiet=quiet, is_named=False)
    except (OSError, ValueError) as error:  # a ValueError: a name that no system accepts
        return _Outcome.UNREADABLE, reason(error)
    return _Outcome.MATCH if digest == expected else _Outcome.MISMATCH, None


def _report(name: str, outcome: _Outcome, why: str | None, *, quiet: bool, as_json: bool) -> None:
    if quiet and outcome is _Outcome.MATCH:
        return
    if as_json:
        say_json({"name": name, "outcome": outcome.name.lower(), "reason": why})
    elif outcome is _Outcome.MATCH:
        say(f"{printable(name)}: OK")
    else:
        say(f"{printable(name)}: FAILED" + (f" ({why})" if why else ""))


def _read_lines(sum_file: str) -> Iterator[str]:
    """Yield the lines; raise an error at a line that no sum file has."""
    try:
        with open_file(sum_file) as file:
            while line := file.readline(MAX_LINE + 1):
                if len(line) > MAX_LINE:
                    raise InputValueError(f"not a sum file: a line is over {MAX_LINE} bytes long")
                yield line.decode()
    except UnicodeDecodeError as error:
        raise InputValueError("not a sum file: not UTF-8") from error
    except OSError as error:
        raise InputValueError(reason(error)) from error
