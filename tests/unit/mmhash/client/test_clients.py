"""Both clients have the same methods, and name the extra that they need."""

import inspect
import subprocess
import sys

import mmhash
from mmhash.client import AsyncClient, Client


def test_both_clients_have_the_same_calls() -> None:
    for name, call in vars(Client).items():
        if not name.startswith("_") and name != "close":
            other = getattr(AsyncClient, name)
            assert inspect.signature(call) == inspect.signature(other)
            assert inspect.iscoroutinefunction(other)
            assert call.__doc__ == other.__doc__


def test_both_are_there_when_asked_for() -> None:
    assert mmhash.Client is Client
    assert mmhash.AsyncClient is AsyncClient


def test_without_httpx_the_extra_is_named() -> None:
    program = "import sys; sys.modules['httpx'] = None; import mmhash; mmhash.Client"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: httpx is not installed: pip install 'mmhash-keys[client]'"
    )
