"""The `mmhash` command: starts the app, and lets nothing but one line reach a user as an error."""

import io
import os
import sys

from mmhash.cli.extras import extra
from mmhash.errors import MMHashError


def main() -> None:
    """Run the command line; never leave a trace on stderr for what is not a defect of ours."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A sum file is UTF-8 with bare newlines, whatever the locale and the platform.
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    try:
        try:
            with extra("cli"):
                from mmhash.cli.app import app  # noqa: PLC0415  (what it needs may be missing)
            app(prog_name="mmhash")
        finally:
            # What stdout refuses shows here, not after the last handler. Without one, None is fine.
            print(end="", flush=True)  # noqa: T201
    except KeyboardInterrupt:
        sys.exit(130)
    except MMHashError as error:
        sys.exit(f"mmhash: {error}")
    except OSError as error:
        # stdout is gone or full: its buffer would be tried again at exit, and must have a place.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1 if isinstance(error, BrokenPipeError) else f"mmhash: {error}")
