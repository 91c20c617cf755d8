"""A service to attack, in its own process."""

import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import mmhash
from tests.support import service
from tests.support.decoders import wait_for_ready

TENANTS = {"acme": "11" * 32, "umbrella": "22" * 32}
LIMITS = {
    "max_body_bytes": 8 << 20,
    "max_held_bytes": 64 << 20,
    "max_pixels": 640 * 480,
    "tenants": TENANTS,
}


class Victim(service.Service):
    """A service to attack, with a client."""

    def __init__(self, program: Sequence[str] = service.COMMAND, **settings: Any) -> None:
        super().__init__(settings={**LIMITS, **settings}, program=program)
        self.wait_until_listening()
        self.client = self.new_client()
        self._has_been_ready = False

    def hash(self, body: Any, content_type: str = "application/octet-stream", **query: Any) -> Any:
        """Return the response to POST /hash."""
        headers = {"content-type": content_type}
        return self.client.post("/hash", content=body, headers=headers, params=query)

    def hash_json(self, *items: Any, **more: Any) -> httpx.Response:
        """Return the response to POST /hash of JSON items."""
        return self.client.post("/hash", json={"items": items, **more})

    def memory(self) -> int:
        """Return how many bytes the service has in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert resident is not None
        return int(resident[1]) << 10

    def end(self) -> None:
        """Stop the service. Its log is then complete."""
        self.client.close()
        self.process.terminate()
        self.process.wait(service.TIMEOUT_S)
        self.log.join()

    def assert_well(self) -> None:
        """Assert that the service is ready, holds nothing of an attack, and hashes correctly."""
        print(self.log.text[-4000:])  # pytest shows this if the test fails
        assert self.process.poll() is None, self.process.poll()
        with self.new_client() as client:
            if not self._has_been_ready:  # its decoders may still be starting
                wait_for_ready(client)
                self._has_been_ready = True
            assert client.get("/ready").status_code == 200
            headers = {"content-type": "application/octet-stream"}
            (item,) = client.post("/hash", content=b"abc", headers=headers).json()["items"]
        assert item["key"] == mmhash.key(b"abc").hex()
        assert "Traceback" not in self.log.text


@contextmanager
def serving(*program: str, **settings: Any) -> Iterator[Victim]:
    """Run a service with other settings. At the end it must still be well."""
    victim = Victim(program or service.COMMAND, **settings)
    try:
        yield victim
        victim.assert_well()
        victim.end()
    finally:
        victim.client.close()
        victim.kill()


def flood(connection: socket.socket, piece: bytes, *, count: int, pause_s: float = 0) -> None:
    """Send pieces until the server closes the connection. It must not accept all of them."""
    try:
        for _ in range(count):
            connection.sendall(piece)
            time.sleep(pause_s)
    except (ConnectionResetError, BrokenPipeError):
        return
    raise AssertionError("the server took it all")
