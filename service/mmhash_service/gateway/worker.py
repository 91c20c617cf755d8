"""A worker: its connections, its load and its health."""

from collections.abc import Mapping, Sequence
from typing import Literal

import httpx

from mmhash_service.gateway.connection import Connection, Pool, RefusedError, request_head
from mmhash_service.gateway.discovery import Adapter, Description, complete
from mmhash_service.gateway.expected import NO_BLOCKS, ExpectedBlocks, SentBlocks, UnnamedBlocks
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker_spec import WorkerSpec, endpoint_of

# A running request delays a new prompt about as much as this many more tokens would.
RUNNING_TOKENS = 64

# Read at most this much of the response to a probe. An engine's /metrics has 50 to 300 kB.
_MAX_PROBE = 1 << 20


# If a worker's events list none of this many planned blocks in a row, the gateway's names for them
# are wrong. A wrong name hides all blocks of a prompt, so two short prompts are enough.
ENOUGH_BLOCKS = 8

Verdict = Literal["unknown", "right", "wrong"]


class NameCheck:
    """Checks whether a worker's events list the blocks that it should have stored.

    With a wrong release, engine, algorithm, seed, block size or events port, every request still
    succeeds, but every lookup misses.
    """

    def __init__(self) -> None:
        self._missing = 0
        self._is_right = False

    def add(self, *, is_found: bool, missing: int) -> None:
        """Count the blocks of an answered request."""
        if is_found:
            self._is_right = True
            self._missing = 0  # blocks evicted early or published late are not misnamed
        else:
            self._missing += missing

    @property
    def missing(self) -> int:
        """The number of planned blocks since the events last listed one of them."""
        return self._missing

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the events so far."""
        if self._missing >= ENOUGH_BLOCKS:
            return "wrong"
        return "right" if self._is_right else "unknown"


EJECT_AFTER = 3
"""After this many failures in a row, a worker gets no requests until a probe succeeds."""


class Worker:
    """An engine behind the gateway."""

    def __init__(self, spec: WorkerSpec, settings: GatewaySettings) -> None:
        self.spec = spec
        self.url = spec.url
        self.host = httpx.URL(spec.url).host
        self.endpoint = endpoint_of(spec.url)
        """The address by which Envoy knows the worker, or None if the URL has a host name."""
        # Report nothing as missing before the worker has been asked.
        self.described = complete(spec, None)._replace(lacking={})
        self.engine = spec.engine if spec.engine.name else None
        """The engine to plan for, or None while it is unknown."""
        self.plugin: list[str] | None = None
        """What mmhash's plugin does in the worker, or None without the plugin."""
        self.pool = Pool(spec.url, settings.health_timeout_s)
        self.is_healthy = False
        self.models: Mapping[str, Adapter | None] = {}
        """The models that its /v1/models lists, or nothing while they are unknown."""
        self._model_id: str | None = None
        self.turn = 0
        self.last_how: str | None = None
        """How the worker's last prompt was routed."""
        self.requests = 0
        """The number of running requests from this process."""
        self.waiting = 0
        """The number of running requests whose responses have not begun."""
        self.new_parts = 0.0
        """The fraction of each unanswered prompt that the worker has to compute, summed up."""
        self.expected = ExpectedBlocks()
        self.sent = SentBlocks()
        """The unnamed blocks that this process has sent to the worker."""
        self.names = NameCheck()
        self.release = ""
        """The engine and release that the server reports, such as vllm@0.32.0."""
        self.silent_since: float | None = None
        """Since when the KV events of the healthy worker have been disconnected, or None."""
        self.probe_failure = ""
        """Why the last probe failed, or an empty string."""
        self._authorization = settings.authorization
        self._failures = 0
        self._restarts = 0
        self._pending_tokens = 0
        self._unanswered: set[Connection] = set()

    @property
    def load(self) -> float:
        """An estimate of the tokens that the worker computes before it starts another request."""
        return float(self._pending_tokens + RUNNING_TOKENS * self.requests)

    def begin(
        self,
        tokens: int,
        blocks: Sequence[int] = (),
        unnamed: UnnamedBlocks = NO_BLOCKS,
        *,
        new_part: float = 1.0,
    ) -> Sequence[int]:
        """Count a request until `end`, and its tokens until `begin_response`.

        `new_part` is the fraction of the prompt that these tokens make up. Return the blocks that
        were added to `expected`. The caller has to remove them.
        """
        self.requests += 1
        self.waiting += 1
        self._pending_tokens += tokens
        self.new_parts += new_part
        self.sent.begin(unnamed)
        return self.expected.add(blocks)

    def begin_response(self, tokens: int, *, new_part: float = 1.0) -> None:
        """Stop counting the tokens of a request: the worker has computed them."""
        self.waiting -= 1
        self._pending_tokens -= tokens
        self.new_parts -= new_part

    def end(self, unnamed: UnnamedBlocks = NO_BLOCKS) -> None:
        """Stop counting a request."""
        self.requests -= 1
        self.sent.end(unnamed)

    def succeed(self) -> None:
        """Forget earlier failures, because the worker answers."""
        self._failures = 0

    def readmit(self) -> bool:
        """Put the worker back into rotation. Return True if it had been ejected."""
        self._failures = 0
        was_healthy, self.is_healthy = self.is_healthy, True
        if not was_healthy:
            self.sent.clear()  # the worker may have restarted with an empty cache
        return not was_healthy

    def note_models(self, names: Mapping[str, Adapter | None], model_id: str | None) -> None:
        """Note the worker's models, and the name by which it knows the base model."""
        self.models, self._model_id = names, model_id
        self._update_engine()

    def note_description(self, description: Description) -> None:
        """Note how the worker describes itself."""
        self.described = description
        self._update_engine()

    def note_plugin(self, features: list[str] | None) -> None:
        """Note the plugin's features. With `keys`, the engine names media by mmhash's keys."""
        self.plugin = features
        self._update_engine()

    def _update_engine(self) -> None:
        engine = self.described.engine
        if engine.server == "python" and "keys" in (self.plugin or ()):
            engine = engine._replace(server="mmhash")
        engine = engine._replace(by_tenant="tenants" in (self.plugin or ()))
        if engine.name.startswith("vllm"):
            engine = engine._replace(model_id=self._model_id)
        self.engine = engine if engine.name else None

    def note_restarts(self, count: int) -> None:
        """Note how often the KV events have restarted. After a restart, the cache may be empty."""
        if count != self._restarts:
            self._restarts = count
            self.sent.clear()

    def fail(self, *, is_silent: bool = True) -> bool:
        """Note a failure. Return True if this failure ejects the worker."""
        self._failures += 1
        if self._failures < EJECT_AFTER:
            return False
        was_healthy, self.is_healthy = self.is_healthy, False
        if is_silent:
            # A hanging worker holds requests that another worker could answer, so abort them. A
            # worker that shuts down refuses connections or reports itself unhealthy, and finishes
            # its requests.
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

        Send it only once: a worker that closes the connection may have read the request, or crashed
        on it.
        """
        try:
            connection = self.pool.take_idle() or await self.pool.open()
        except RefusedError:
            self.sent.clear()  # the worker's process has exited, or will soon
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
        """GET a path. Return the status and the beginning of the body."""
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
        """Close idle connections now, and the others when their requests end."""
        self.pool.close()
