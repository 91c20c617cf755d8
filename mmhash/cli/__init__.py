"""The `mmhash` command: runs the app, and prints every error as one line."""

import io
import os
import sys
from typing import TYPE_CHECKING

from mmhash.cli.report import visible
from mmhash.errors import MMHashError
from mmhash.extras import needs_extra
from mmhash.io.names import printable, reason

if TYPE_CHECKING:
    from typer import Typer


def main() -> None:
    """Run the command line; print a traceback only for bugs in mmhash."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Output is UTF-8 with bare newlines, regardless of the locale and the platform.
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    # No command multiplies matrices, so the threads that numpy would start for it only spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Otherwise pydantic reads the metadata of all installed packages at each start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    try:
        try:
            with needs_extra("cli"):
                from mmhash.cli.app import app  # noqa: PLC0415  (its dependencies may be missing)
            status = _run(app)
        finally:
            # Flush here, to raise errors of stdout before the last handler has run.
            print(end="", flush=True)  # noqa: T201
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("mmhash"):  # a bug
            raise
        sys.exit(f"mmhash: {error}")
    except MMHashError as error:
        sys.exit(visible(f"mmhash: {error}", sys.stderr))
    except OSError as error:
        # stdout is closed or full. Python flushes its buffer again at exit, so point it at the null
        # device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        named = f"{printable(str(error.filename))}: {reason(error)}" if error.filename else error
        sys.exit(
            1 if isinstance(error, BrokenPipeError) else visible(f"mmhash: {named}", sys.stderr)
        )
    sys.exit(status)


def _run(app: "Typer") -> int:
    """Run the app; escape its error messages, which quote arguments with any character."""
    from typer import Abort  # noqa: PLC0415  (installed: the app is imported)

    try:
        status = app(prog_name="mmhash", standalone_mode=False)
    except Abort:
        return 1
    except Exception as error:
        # Typer does not export the base class of its errors.
        if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
            raise
        # Typer checks values with pydantic, whose messages have this prefix.
        message = error.format_message().replace("Value error, ", "", 1)
        text = visible(message, sys.stderr)
        error.format_message = lambda: text
        error.show()  # type: ignore[attr-defined]
        return int(error.exit_code)
    return status if isinstance(status, int) else 0
