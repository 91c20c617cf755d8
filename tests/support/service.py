"""Runs the service in its own process: starts and stops it, and reads its address and log."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Thread
from typing import IO, Any

import httpx

from tests.support import preloaded

# Wait long, because a busy machine is not a failure.
TIMEOUT_S = 120

# Take a free port and one decoder: each takes CPU to start. Later arguments override these.
FEW = ("--port", "0", "--set", "decoders=1")
COMMAND = (sys.executable, "-m", "mmhash", "serve", *FEW)

# A request with a body of six bytes. The server asks for the body by `100 Continue`.
BEGIN = (
    b"POST /hash HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"
    b"Content-Length: 6\r\nExpect: 100-continue\r\n\r\n"
)


class Log:
    """The lines that a process writes. A thread reads them, or a full pipe would block the process."""

    def __init__(self, stream: IO[str]) -> None:
        self.lines: list[str] = []
        self._position = 0
        self._ended = False
        self._changed = Condition()
        self._thread = Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the lines up to now."""
        return iter(list(self.lines))

    @property
    def text(self) -> str:
        """Everything up to now."""
        return "".join(self.lines)

    def wait_for(self, pattern: str, count: int = 1) -> list[re.Match[str]]:
        """Return the next matches. Each call begins after the last line of the previous call."""
        matches: list[re.Match[str]] = []
        with self._changed:
            while len(matches) < count:
                while self._position == len(self.lines):
                    in_time = self._changed.wait_for(self._has_news, TIMEOUT_S)
                    assert in_time, f"no {pattern!r} in {TIMEOUT_S} s in:\n{self.text}"
                    ended = self._ended and self._position == len(self.lines)
                    assert not ended, f"the log ended without {pattern!r}:\n{self.text}"
                match = re.search(pattern, self.lines[self._position])
                self._position += 1
                if match is not None:
                    matches.append(match)
        return matches

    def join(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until every process that has the stream has closed it."""
        self._thread.join(timeout_s)

    def _has_news(self) -> bool:
        return self._ended or self._position < len(self.lines)

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def read_all(connection: socket.socket) -> bytes:
    """Return the bytes received until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


class Service:
    """A process that runs `mmhash serve`, or another program that logs its address the same way."""

    def __init__(
        self,
        *arguments: str,
        settings: Mapping[str, Any] | None = None,
        program: Sequence[str] = COMMAND,
        env: Mapping[str, str] | None = None,
        new_session: bool = False,
    ) -> None:
        """Start the process. Settings are passed by `--set`, as JSON unless they are strings."""
        command = [*program, *arguments]
        for name, value in (settings or {}).items():
            text = value if isinstance(value, str) else json.dumps(value)
            command += ["--set", f"{name}={text}"]
        self.process: subprocess.Popen[str] | preloaded.Process
        if command[:2] == [sys.executable, "-m"] and not new_session:
            self.process = preloaded.Process(*command[2:], env=env, piped=True)
        else:
            self.process = subprocess.Popen(
                command,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=env,
                start_new_session=new_session,
            )
        assert self.process.stderr is not None
        self.log = Log(self.process.stderr)
        self.url = ""
        self.socket_path: Path | None = None

    def wait_until_listening(self) -> None:
        """Read the address from the log."""
        (match,) = self.log.wait_for(r'running on (?:(http://[^\s"]+)|unix:([^\s"]+))')
        self.url = match[1] or "http://localhost"
        self.socket_path = Path(match[2]) if match[2] else None

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port of a TCP address."""
        url = httpx.URL(self.url)
        assert url.port is not None
        return url.host, url.port

    @property
    def server_pids(self) -> list[int]:
        """The server processes, without the resource tracker of spawned processes."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(pid) for pid in children if b"resource_tracker" not in command_line(int(pid))]

    def new_client(self, **options: Any) -> httpx.Client:
        """Return a client of the service. The caller closes it."""
        # Do not load certificate authorities: that takes CPU, and nothing here uses TLS.
        path = None if self.socket_path is None else str(self.socket_path)
        transport = httpx.HTTPTransport(uds=path, verify=False)
        return httpx.Client(base_url=self.url, transport=transport, timeout=TIMEOUT_S, **options)

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(self.address, timeout=TIMEOUT_S)

    def send_raw(self, request: bytes) -> bytes:
        """Send bytes as they are, and return what the server sends until it closes the connection."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_all(connection)

    def begin_request(self) -> socket.socket:
        """Return a connection with a request that a process has accepted, and half of its body."""
        connection = self.connect()
        connection.sendall(BEGIN)
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"abc")
        return connection

    def stop(self) -> str:
        """Stop the service as an operator does, and return its log."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> str:
        """Wait until the service has ended without an error, and return its log."""
        status = self.process.wait(TIMEOUT_S)
        self.log.join()
        assert status == 0, self.log.text
        assert "Traceback" not in self.log.text, self.log.text
        return self.log.text

    def kill(self) -> None:
        """Kill the process at once."""
        self.process.kill()
        self.process.wait()
        self.log.join(5)


@contextmanager
def serving(*arguments: str, **options: Any) -> Iterator[Service]:
    """Run a service until the block ends. It must then stop without an error."""
    service = Service(*arguments, **options)
    try:
        service.wait_until_listening()
        yield service
        if service.process.poll() is None:
            service.stop()
    finally:
        service.kill()


def handles_signals(pid: int) -> bool:
    """Return True if a process handles SIGTERM, as a server process does once it runs."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def environment(**variables: str) -> dict[str, str]:
    """Return the environment without settings of mmhash, and with these variables."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("MMHASH_")}
    return inherited | variables


def count(client: httpx.Client, name: str, **labels: str) -> float:
    """Return the sum of a metric's series that have these labels."""
    wanted = {f'{label}="{value}"' for label, value in labels.items()}
    total = 0.0
    for line in client.get("/metrics").text.splitlines():
        match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if match and wanted <= set((match[1] or "").split(",")):
            total += float(match[2])
    return total


def command_line(pid: int) -> bytes:
    """Return the arguments of a process, or nothing if it has exited."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # before or while it is read
        return b""
