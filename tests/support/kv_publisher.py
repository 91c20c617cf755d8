"""Publishes KV events as vLLM and SGLang do: in numbered batches, with replays."""

import json
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, Self

import msgspec
import zmq

END = (-1).to_bytes(8, "big", signed=True)


def stored(*ids: int | bytes, medium: str | None = "GPU", size: int = 16, **more: Any) -> Any:
    """Return an event as the engines publish it."""
    return {
        "type": "BlockStored",
        "block_hashes": list(ids),
        "parent_block_hash": None,
        "token_ids": list(range(size * len(ids))),
        "block_size": size,
        "lora_id": None,
        "medium": medium,
        "lora_name": None,
        **more,
    }


def removed(*ids: int | bytes, medium: str | None = "GPU", **more: Any) -> Any:
    return {"type": "BlockRemoved", "block_hashes": list(ids), "medium": medium, **more}


CLEARED = {"type": "AllBlocksCleared"}


def encode(*events: Any, rank: int | None = None) -> bytes:
    """Return a batch of events."""
    return msgspec.msgpack.encode([1.5, list(events), rank])


NO_BATCHES: list[Any] = [
    None,
    [],
    [1.0],
    [1.0, 5, None],
    ["now", [], None],
    [1.0, [], "rank"],
    [1.0, [None], None],
    [1.0, [["Unknown", 1]], None],
    [1.0, [[["BlockStored"], 1]], None],
    [1.0, [{}], None],
    [1.0, [{"type": "BlockStored"}], None],
    [1.0, [stored(1) | {"block_hashes": ["1"]}], None],
    [1.0, [stored(1) | {"block_hashes": [True]}], None],
    [1.0, [stored(1) | {"block_size": "2"}], None],
]
"""Values that are not batches of events."""


class Publisher:
    """Publishes batches, and answers replays in a thread while `answers` is set."""

    def __init__(
        self,
        events: int = 0,
        replay: int = 0,
        *,
        buffered: int = 10_000,
        rank: int | None = 0,
        topic: bytes = b"",
        has_replay: bool = True,
    ) -> None:
        self.number = 0
        self.rank = rank
        self.topic = topic
        self.answers = True
        self.requests: list[int] = []
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=buffered)
        self._lock = threading.Lock()
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._pub.set_hwm(100_000)
        self._router = self._context.socket(zmq.ROUTER)
        try:
            self.events = self._bind(self._pub, events)
            self.replay = self._bind(self._router, replay) if has_replay else None
        except zmq.ZMQError:  # a port that was asked for is in use
            self._context.destroy()
            raise
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, *events: Any, time: float = 0.0, is_lost: bool = False) -> None:
        """Publish one batch. If `is_lost`, it is only in the buffer of replays."""
        self.send(msgspec.msgpack.encode([time, list(events), self.rank]), is_lost=is_lost)

    def send(self, payload: bytes, *, is_lost: bool = False) -> None:
        """Publish a batch, or any other bytes."""
        with self._lock:
            number, self.number = self.number, self.number + 1
            if not is_lost:
                self._pub.send_multipart([self.topic, number.to_bytes(8, "big"), payload])
            self._buffer.append((number, payload))

    def send_frames(self, frames: Iterable[bytes]) -> None:
        """Send a message with any frames."""
        with self._lock:
            self._pub.send_multipart(list(frames))

    def close(self) -> None:
        """Close the sockets. A second call does nothing."""
        self._is_closing = True
        self._thread.join()
        self._context.destroy(linger=0)

    @staticmethod
    def _bind(socket: Any, port: int) -> str:
        socket.bind(f"tcp://127.0.0.1:{port}" if port else "tcp://127.0.0.1:*")
        return str(socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def _serve(self) -> None:
        while not self._is_closing:
            is_asked = self.replay is not None and self._router.poll(20)
            if not (is_asked and self.answers):
                threading.Event().wait(0.01)
                continue
            peer, _, start = self._router.recv_multipart()
            with self._lock:
                self.requests.append(int.from_bytes(start, "big"))
                for number, payload in self._buffer:
                    if number >= self.requests[-1]:
                        head = number.to_bytes(8, "big")
                        self._router.send_multipart([peer, b"", self.topic, head, payload])
                self._router.send_multipart([peer, b"", b"", END, b""])


class PublisherProcess:
    """A publisher in its own process, which tests can kill, stop and start again."""

    def __init__(self, events: int = 0, replay: int = 0) -> None:
        command = [sys.executable, "-m", "tests.support.kv_publisher", str(events), str(replay)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.events, self.replay = self.process.stdout.readline().split()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def publish(self, *events: Any) -> None:
        assert self.process.stdin is not None
        print(json.dumps(events), file=self.process.stdin, flush=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def port(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def _main() -> None:
    """Publish each line of the standard input."""
    with Publisher(int(sys.argv[1]), int(sys.argv[2])) as publisher:
        print(publisher.events, publisher.replay, flush=True)
        for line in sys.stdin:
            publisher.publish(*json.loads(line))


if __name__ == "__main__":
    _main()
