"""The server as a user starts it: a process of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    command = [sys.executable, "-m", "mmhash", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            log = iter(server.stderr.readline, "")
            found = (re.search(r"running on (http://\S+)", line) for line in log)
            yield next(match[1] for match in found if match)
        finally:
            server.terminate()
            server.stderr.read()
    assert server.returncode == 0
