"""The `mmhash` command: starts the app, and lets nothing but one line reach a user as an error."""

import io
import os
import sys
from typing import TYPE_CHECKING

from mmhash.cli.extras import extra
from mmhash.cli.terminal import visible
from mmhash.errors import MMHashError

if TYPE_CHECKING:
    from typer import Typer


def main() -> None:
    """Run the command line; never leave a trace on stderr for what is not a defect of ours."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A sum file is UTF-8 with bare newlines, whatever the locale and the platform.
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    try:
        try:
            with extra("cli"):
                from mmhash.cli.app import app  # noqa: PLC0415  (what it needs may be missing)

                status = _run(app)
        finally:
            # What stdout refuses shows here, not after the last handler. Without one, None is fine.
            print(end="", flush=True)  # noqa: T201
    except KeyboardInterrupt:
        sys.exit(130)
    except MMHashError as error:
        sys.exit(visible(f"mmhash: {error}", sys.stderr))
    except OSError as error:
        # stdout is gone or full: its buffer would be tried again at exit, and must have a place.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(
            1 if isinstance(error, BrokenPipeError) else visible(f"mmhash: {error}", sys.stderr)
        )
    sys.exit(status)


def _run(app: "Typer") -> int:
    """Run the app; an argument that it cannot read may hold anything, and is shown in its error."""
    from typer import Abort, rich_utils  # noqa: PLC0415  (the app is imported: typer is there)

    try:
        status = app(prog_name="mmhash", standalone_mode=False)
    except Abort:
        return 1
    except Exception as error:
        # Typer keeps the base class of its errors to itself.
        if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
            raise
        text = visible(error.format_message(), sys.stderr)
        error.format_message = lambda: text
        rich_utils.rich_format_error(error)  # type: ignore[arg-type]
        return int(error.exit_code)
    return status if isinstance(status, int) else 0
