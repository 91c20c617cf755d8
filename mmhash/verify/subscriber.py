"""The KV events of one running engine, read while prompts are sent to the engine."""

import time
from typing import Self

import zmq

from mmhash.errors import InputValueError, TransportError
from mmhash.kvindex.events import BlocksStored, Event, parse_batch
from mmhash.kvindex.subscriber import subscribe

_READY_S = 10

# The events of one prompt arrive within seconds; other clients of the engine add more.
_STORED_S = 60


class Subscriber:
    """A subscription to an engine's KV events."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.Context()
        try:
            self._connection = subscribe(self._context, endpoint)
            self._wait_until_ready(endpoint)
        except (InputValueError, TransportError):
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_until_ready(self, endpoint: str) -> None:
        """Complete the handshake, because events published before its end do not arrive."""
        end = time.monotonic() + _READY_S
        while not self._connection.is_ready:
            self._connection.socket.poll(100)
            self._connection.receive()
            if time.monotonic() > end:
                raise TransportError(f"no publisher of KV events answers at {endpoint}")

    def close(self) -> None:
        """Close the subscription."""
        self._context.destroy(linger=0)

    def stored(self, *, first_s: float, quiet_s: float = 0.5) -> list[BlocksStored]:
        """Return the stored blocks, until no more arrive for `quiet_s`.

        The first event may take `first_s`. An engine publishes after each step, so pauses are
        short.
        """
        blocks: list[BlocksStored] = []
        wait_s = first_s
        end = time.monotonic() + _STORED_S
        while self._connection.socket.poll(int(1000 * wait_s)):
            found = [event for event in self._receive() if isinstance(event, BlocksStored)]
            blocks += found
            if time.monotonic() > end:
                raise TransportError("the engine publishes without a pause: check an idle engine")
            if found:
                wait_s = quiet_s
        return blocks

    def _receive(self) -> list[Event]:
        """Return the events that have arrived."""
        try:
            messages = self._connection.receive() or []
            return [event for *_, payload in messages for event in parse_batch(payload).events]
        except InputValueError as error:
            raise TransportError(f"the endpoint sends no KV events of an engine: {error}") from None
