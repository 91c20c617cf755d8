"""A host of files, in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port


@contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """Run Python's own server of files; yield its URL."""
    port = str(free_port())
    command = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1"]
    more = ["--protocol", "HTTP/1.1", "--directory", str(folder)]
    with subprocess.Popen(
        [*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
