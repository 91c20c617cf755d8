"""The command as a process: how it starts, how it ends, and what it leaves on stderr."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import mmhash
from mmhash.cli.app import COMMANDS, load_command

COMMAND = [sys.executable, "-m", "mmhash"]


def start(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
    """The process with all its pipes, and with stdout buffered as users have it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {"env": os.environ | {"PYTHONUNBUFFERED": ""}}
    return subprocess.Popen([*COMMAND, *arguments], **(pipes | environment | options))


def test_standard_input_is_read_where_no_file_is_named(tmp_path: Path) -> None:
    # More than a piece, so that it is hashed in several.
    content = os.urandom(3_000_000)
    stdin = tmp_path / "stdin"
    stdin.write_bytes(content)
    line = f"{mmhash.key(content).hex()}  -\n"

    piped = subprocess.run([*COMMAND, "key"], input=content, capture_output=True, check=False)
    assert (piped.returncode, piped.stdout.decode(), piped.stderr) == (0, line, b"")

    with stdin.open("rb") as file:
        file.seek(len(content) - 10)
        rest = subprocess.run([*COMMAND, "key", "-"], stdin=file, capture_output=True, check=False)
    assert rest.stdout.decode() == f"{mmhash.key(content[-10:]).hex()}  -\n"


def test_core_needs_no_extra() -> None:
    blocked = ("typer", "rich", "safetensors", "PIL", "torch", "pydantic")
    code = f"""
import sys
sys.modules |= dict.fromkeys({blocked})
import mmhash
mmhash.key(b"")
from mmhash.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stdout == b""
    assert (
        done.stderr.decode() == "mmhash: typer is not installed: pip install 'mmhash-keys[cli]'\n"
    )


@pytest.mark.timeout(60)  # a line that is kept back is waited for
def test_interrupt_ends_without_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"foo")
    with start("key", str(file), "-") as process:
        process.stdout.readline()  # now it waits for standard input, or is about to
        # A signal just before the read is seen only after it: send it again, as a user would.
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        assert process.returncode == 130
        assert process.stderr.read() == b""


@pytest.mark.timeout(60)  # a line that is kept back is waited for
def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"foo")
    with start("key", str(file), "-") as process:
        process.stdout.readline()
        process.stdout.close()
        process.stdin.close()
        assert process.wait() == 1
        assert process.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full, start("--version", stdout=full) as process:
        assert process.wait() == 1
        assert process.stderr.read().decode() == "mmhash: [Errno 28] No space left on device\n"


def test_errors_of_ours_are_one_line(tmp_path: Path) -> None:
    secret = tmp_path / "tenant"
    secret.write_bytes(b"short")
    with start("key", "--tenant-file", str(secret)) as process:
        assert process.wait() == 1
        assert process.stderr.read().decode() == (
            f"mmhash: {secret}: a tenant's secret must be 32 bytes or 64 hex digits\n"
        )


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_their_own_help(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    assert COMMANDS[name].help == (command.help or "").partition("\n")[0]


def imported(heavy: set[str], *arguments: str) -> tuple[str, set[str]]:
    """Run a command; return its output and those of the modules that it has imported."""
    code = f"""
import sys
from mmhash.cli import main
try:
    main()
finally:
    print(*{heavy} & set(sys.modules), file=sys.stderr)
"""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


def test_help_imports_no_command() -> None:
    heavy = {"numpy", "torch", "pyarrow", "pydantic", "blake3", "mmhash.engines", "mmhash.cli.key"}
    output, found = imported(heavy, "--help")
    assert found == set()
    assert all(name in output for name in COMMANDS)


def test_a_check_of_settings_imports_neither_the_server_nor_the_engines() -> None:
    heavy = {"fastapi", "uvicorn", "prometheus_client", "mmhash.engines", "numpy"}
    output, found = imported(heavy, "serve", "--check")
    assert found == set()
    assert output.startswith("settings: ok; ")
