"""One worker: its connections, its load and its health."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import httpx

from mmhash_service.gateway.connection import Connection, Pool, RefusedError, request_head
from mmhash_service.gateway.discovery import Description, complete
from mmhash_service.gateway.expected import NO_BLOCKS, ExpectedBlocks, SentBlocks, UnnamedBlocks
from mmhash_service.gateway.naming import NameCheck
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker_spec import WorkerSpec, endpoint_of

# The load of a request that runs, in tokens: it slows the computation of another prompt by as much
# as these tokens of its own would.
RUNNING_TOKENS = 64

# The bytes that are read of an answer to a probe: /metrics of an engine has 50 to 300 kB.
_MAX_PROBE = 1 << 20


class Adapter(NamedTuple):
    """A LoRA adapter, as an engine lists it."""

    base: str
    """The name of its base model."""
    path: str


EJECT_AFTER = 3
"""Failures in a row after which a worker gets no more requests until a probe succeeds."""


class Worker:
    """An engine behind the gateway."""

    def __init__(self, spec: WorkerSpec, settings: GatewaySettings) -> None:
        self.spec = spec
        self.url = spec.url
        self.host = httpx.URL(spec.url).host
        self.endpoint = endpoint_of(spec.url)
        """Its address and port, as Envoy names it; None if its URL has a name."""
        # What it lacks is known, and logged, once it was asked.
        self.described = complete(spec, None, None)._replace(lacking={})
        self.engine = spec.engine if spec.engine.name else None
        """Its engine as requests are prepared for it; None while it is not known."""
        self.plugin: list[str] | None = None
        """What mmhash's plugin does in it; None without the plugin."""
        self.pool = Pool(spec.url, settings.health_timeout_s)
        self.is_healthy = False
        self.models: Mapping[str, Adapter | None] = {}
        """The models that it lists at /v1/models; none if that is not known."""
        self._model_id: str | None = None
        self.turn = 0
        self.last_how: str | None = None
        """How the last prompt that it was sent was routed."""
        self.requests = 0
        """The requests that this process has sent to it and that still run."""
        self.waiting = 0
        """Those of them whose responses have not begun."""
        self.new_parts = 0.0
        """The parts of their prompts that the requests it has not answered yet are new, in sum."""
        self.expected = ExpectedBlocks()
        self.sent = SentBlocks()
        """The blocks without names that this process has sent to it."""
        self.engine_requests = 0
        """The requests that it reports itself."""
        self.names = NameCheck()
        self.release = ""
        """The engine and release that its server reports, such as vllm@0.32.0."""
        self.silent_since: float | None = None
        """Since when a healthy worker has had no connected KV events."""
        self.has_size_warning = False
        """True once the log has the size of its blocks, which is not that of its plans."""
        self.probe_failure = ""
        """Why the last probe failed, in words; empty if it did not."""
        self._authorization = settings.authorization
        self._failures = 0
        self._restarts = 0
        self._pending_tokens = 0
        self._unanswered: set[Connection] = set()

    @property
    def load(self) -> float:
        """The tokens that it still has to compute before another request, by estimate."""
        running = max(self.requests, self.engine_requests)
        return float(self._pending_tokens + RUNNING_TOKENS * running)

    @contextmanager
    def computing(
        self,
        tokens: int,
        blocks: Sequence[int] = (),
        unnamed: UnnamedBlocks = NO_BLOCKS,
        *,
        new_part: float = 1.0,
    ) -> Iterator[Sequence[int]]:
        """Count a request, and its tokens until its response begins; `end` ends the request.

        `new_part` is the part of the prompt that these tokens are.
        Yields those of the blocks that are expected now; they are, unless the request fails, until
        they are removed.
        """
        self.requests += 1
        self.waiting += 1
        self._pending_tokens += tokens
        self.new_parts += new_part
        expected = self.expected.add(blocks)
        self.sent.begin(unnamed)
        try:
            yield expected
        except BaseException:
            self.end(unnamed)
            self.expected.remove(expected)
            raise
        finally:
            self.waiting -= 1
            self._pending_tokens -= tokens
            self.new_parts -= new_part

    def end(self, unnamed: UnnamedBlocks = NO_BLOCKS) -> None:
        """Count a request as answered."""
        self.requests -= 1
        self.sent.end(unnamed)

    def succeed(self) -> None:
        """Note an answer."""
        self._failures = 0

    def readmit(self) -> bool:
        """Let it have requests again; return whether it had none."""
        self._failures = 0
        was_healthy, self.is_healthy = self.is_healthy, True
        if not was_healthy:
            self.sent.clear()  # it may have started again, with an empty cache
        return not was_healthy

    def note_models(self, names: Mapping[str, Adapter | None], model_id: str | None) -> None:
        """Note the models that it lists, and its own name of the base model."""
        self.models, self._model_id = names, model_id
        self._update_engine()

    def note_description(self, description: Description) -> None:
        """Note what it is."""
        self.described = description
        self._update_engine()

    def note_plugin(self, features: list[str] | None) -> None:
        """Note what the plugin does in it: with `keys`, the engine names media by mmhash's keys."""
        self.plugin = features
        self._update_engine()

    def _update_engine(self) -> None:
        engine = self.described.engine
        if engine.server == "python" and "keys" in (self.plugin or ()):
            engine = engine._replace(server="mmhash")
        if engine.name.startswith("vllm"):
            engine = engine._replace(model_id=self._model_id)
        self.engine = engine if engine.name else None

    def note_restarts(self, count: int) -> None:
        """Note how often its KV events have begun again: each time its cache may be empty."""
        if count != self._restarts:
            self._restarts = count
            self.sent.clear()

    def fail(self, *, is_silent: bool = True) -> bool:
        """Note a failure; return whether it was the one after which it gets no more requests."""
        self._failures += 1
        if self._failures < EJECT_AFTER:
            return False
        was_healthy, self.is_healthy = self.is_healthy, False
        if is_silent:
            # A worker that hangs holds requests that another one can still answer. One that shuts
            # down refuses connections, or says that it is unhealthy, and answers those it has.
            for connection in list(self._unanswered):
                connection.abort("the worker was ejected")
        self.pool.close_idle()
        return was_healthy

    async def send(
        self,
        method: bytes,
        head: bytes,
        body: list[bytes],
        timeout_s: float,
        *,
        until_body: bool = False,
    ) -> Connection:
        """Send a request, and return the connection once the response begins.

        It is sent once: a worker that closes the connection may have read it, or ended by it.
        """
        try:
            connection = self.pool.take_idle() or await self.pool.open()
        except RefusedError:
            self.sent.clear()  # its process has ended, or will soon
            raise
        self._unanswered.add(connection)
        try:
            await connection.send(method, head, body, timeout_s, until_body=until_body)
        except BaseException:
            connection.abort("no response")
            raise
        finally:
            self._unanswered.discard(connection)
        return connection

    async def probe(self, path: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Return the status that a GET of a path has, and the beginning of its body."""
        target = self.pool.path_prefix + path
        head = request_head(b"GET", target, self.pool.host_header, self._authorization, None)
        connection = await self.send(b"GET", head, [], timeout_s)
        try:
            body = bytearray()
            while len(body) < _MAX_PROBE and (piece := await connection.read()):
                body += piece
        finally:
            self.pool.give_back(connection)
        return connection.status, bytes(body)

    def close(self) -> None:
        """Close its connections: those of requests that run when these end."""
        self.pool.close()
