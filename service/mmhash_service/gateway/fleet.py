"""Keep the list of workers current, and watch their health and their KV events."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from mmhash.errors import InputValueError, LimitError
from mmhash.kvindex import Index, WorkerStats
from mmhash.kvindex import Worker as EventSource
from mmhash_service.gateway.connection import SilentError, WorkerError
from mmhash_service.gateway.discovery import (
    PLUGIN_PATH,
    Adapter,
    complete,
    describe,
    read_model_list,
    read_plugin,
)
from mmhash_service.gateway.policy import Conversations
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.sources import read_workers
from mmhash_service.gateway.worker import Worker
from mmhash_service.gateway.worker_spec import EngineSpec
from mmhash_service.telemetry import metrics

# Assume a small cache, of this many tokens, until the events show how much the caches hold.
LEAST_CACHED_TOKENS = 1 << 14

# If a healthy worker's events do not connect within this time, their address is probably wrong.
_PATIENCE_S = 10.0
_WARNED = float("inf")

PROBE_SPACING_S = 0.002
"""Seconds between the first probes of two workers. All at once would block the event loop."""

logger = logging.getLogger(__name__)


class Fleet:
    """The workers by URL. One task keeps the list current, and one task per worker probes it."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.workers: dict[str, Worker] = {}
        self._checks: set[asyncio.Task[None]] = set()
        self._turn = 0
        self.cached_tokens = LEAST_CACHED_TOKENS
        """The number of tokens in the caches of all workers together."""
        self.conversations = Conversations()
        self.has_one_list = True
        """True if no two workers list different models."""
        self.has_adapters = False
        """True if any worker lists a LoRA adapter."""
        self._is_indexing = False
        # open() starts these, and close() ends them.
        self.index: Index
        self._refreshing: asyncio.Task[None]

    @property
    def has_healthy(self) -> bool:
        """True if any worker is healthy."""
        return any(worker.is_healthy for worker in self.workers.values())

    @property
    def cached_tokens_each(self) -> int:
        """The average number of tokens in a worker's cache."""
        return self.cached_tokens // max(1, len(self.workers))

    async def open(self) -> None:
        """Find the workers, and probe each once before the first request is accepted."""
        self.index = Index()
        await self._refresh()
        await asyncio.gather(*(self._check(worker) for worker in self.workers.values()))
        self._compare_models()
        self._refreshing = asyncio.create_task(self._refresh_often())
        self._start_checks(self.workers.values(), self._settings.health_interval_s)

    async def close(self) -> None:
        """Stop the tasks, and close idle connections."""
        tasks = [self._refreshing, *self._checks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for worker in self.workers.values():
            worker.close()
        await asyncio.to_thread(self.index.stop)

    def workers_for(self, model: str) -> Sequence[Worker]:
        """Return the workers that may get a request for a model, or for "" if it names none."""
        workers = list(self.workers.values())
        return workers if self.has_one_list else workers_for(model, workers)

    def adapters(self, model: str, engine: EngineSpec) -> set[Adapter]:
        """Return the adapters that an engine's workers list under this name.

        Only healthy workers count, unless none of them lists the name.
        """
        listed = [
            (worker, adapter)
            for worker in self.workers.values()
            if worker.engine == engine and (adapter := worker.models.get(model)) is not None
        ]
        healthy = {adapter for worker, adapter in listed if worker.is_healthy}
        return healthy or {adapter for _, adapter in listed}

    def note_choice(self, worker: Worker) -> None:
        """Note that a request goes to this worker, which moves to the end of the turn order."""
        self._turn += 1
        worker.turn = self._turn

    def note_answer(self, worker: Worker, new_tokens: int, prompt_tokens: int) -> None:
        """Note that a worker answers a request after computing `new_tokens` of its prompt."""
        self.conversations.add(worker.url, new_tokens, prompt_tokens, self.cached_tokens)

    def crowding(self) -> dict[str, float]:
        """Return how much fuller of conversations each worker's cache is than the average cache."""
        computing = {url: worker.new_parts for url, worker in self.workers.items()}
        return self.conversations.crowding(computing, self.cached_tokens)

    def note_stored(self, worker: Worker, blocks: Sequence[int]) -> None:
        """Check that a worker's events now list the blocks of a request that it answered."""
        worker.expected.remove(blocks)
        if worker.engine is None or worker.described.events is None:
            return
        first, last = (self.index.rank_with(worker.url, blocks[at]) for at in (0, -1))
        if first is None and last is not None:  # the last block needs all earlier blocks
            self.index.hold(worker.url, blocks, last)
        before = worker.names.verdict
        is_found = first is not None or last is not None
        worker.names.add(is_found=is_found, missing=len(blocks))
        is_wrong = worker.names.verdict == "wrong"
        if worker.names.verdict != before:
            metrics.GATEWAY_MISNAMED.labels(worker.url).set(is_wrong)
        if is_wrong and before != "wrong":
            logger.warning("worker %s: %s", worker.url, self._misnamed(worker))
        elif before == "wrong" and worker.names.verdict == "right":
            logger.info("worker %s stores blocks under their planned names", worker.url)

    def _misnamed(self, worker: Worker) -> str:
        """Return the likely reason why a worker's events list no planned block."""
        stats, described = self.index.stats().workers.get(worker.url), worker.described
        planned = f"its KV events list none of {worker.names.missing} planned blocks"
        if stats is None or not stats.is_connected:
            return f"{planned}: nothing answers at events={described.events}"
        if not stats.events:
            return (
                f"{planned}: events={described.events} published nothing. Is this the right port?"
            )
        engine = described.engine.name
        if worker.release and worker.release != engine:
            return (
                f"{planned}: the worker reports {worker.release}, but plans assume engine={engine}"
            )
        size = described.engine.tokens_per_block
        if stats.block_size not in {0, size}:
            return (
                f"{planned}: the worker's blocks have {stats.block_size} tokens, but plans assume "
                f"block_size={size}"
            )
        return (
            f"{planned}, but {stats.blocks} other blocks. Its block_size, algorithm or seed may "
            f"differ: run `mmhash verify-engine {worker.url} --events {described.events}`"
        )

    def note_failure(self, worker: Worker, error: WorkerError) -> None:
        """Note that a request to a worker failed.

        Silence is not a failure, because a client may ask for a long answer. Probes find a worker
        that hangs.
        """
        logger.warning("worker %s: %s", worker.url, error)
        if not isinstance(error, SilentError) and worker.fail(is_silent=error.is_silent):
            self._note_ejection(worker)

    @staticmethod
    def _note_ejection(worker: Worker) -> None:
        logger.error("worker %s is ejected until its /health answers", worker.url)

    async def _refresh_often(self) -> None:
        while True:
            await asyncio.sleep(self._settings.health_interval_s)
            joined = await self._refresh()
            self._compare_models()
            self._read_events()
            self._start_checks(joined)

    async def _refresh(self) -> list[Worker]:
        """Read the list of workers. Return the workers that have joined.

        Once workers are known, an empty list is ignored.
        """
        try:
            specs = await read_workers(self._settings)
        except (OSError, ValueError) as error:
            # Keep the known workers, which are probably still there.
            logger.error("the list of workers cannot be read: %s", error)  # noqa: TRY400
            return []
        listed = {spec.url: spec for spec in specs}
        if self.workers and not listed:
            logger.error("the list of workers is empty, so the known workers stay")
            return []
        for url, worker in list(self.workers.items()):
            if listed.get(url) != worker.spec:
                logger.info("worker %s has left", url)
                self._remove(url)
        joined = [
            Worker(spec, self._settings) for url, spec in listed.items() if url not in self.workers
        ]
        for worker in joined:
            logger.info("worker %s has joined", worker.url)
            self.workers[worker.url] = worker
            self._subscribe(worker)
        return joined

    def _compare_models(self) -> None:
        """Note whether workers list different models, and whether any worker lists adapters."""
        lists = [worker.models for worker in self.workers.values() if worker.models]
        self.has_one_list = all(one.keys() == lists[0].keys() for one in lists)
        self.has_adapters = any(any(one.values()) for one in lists)

    def _read_events(self) -> None:
        """Note how many tokens the caches hold, and which workers restarted."""
        stats = self.index.stats().workers
        self._compare_connections(stats)
        for url, worker in self.workers.items():
            if url in stats:
                worker.note_restarts(stats[url].restarts + stats[url].disconnects)
        held = sum(
            stats[url].blocks * worker.engine.tokens_per_block
            for url, worker in self.workers.items()
            if url in stats and worker.engine
        )
        self.cached_tokens = max(LEAST_CACHED_TOKENS, held)

    def _compare_connections(self, stats: Mapping[str, WorkerStats]) -> None:
        """Warn once if a healthy worker's KV events have not been connected for a while."""
        now = time.monotonic()
        for url, worker in self.workers.items():
            if worker.described.events is None or not worker.is_healthy:
                worker.silent_since = None
            elif url in stats and stats[url].is_connected:
                if worker.silent_since == _WARNED:
                    logger.info("worker %s: its KV events are connected", url)
                worker.silent_since = None
            elif worker.silent_since is None:
                worker.silent_since = now
            elif now - worker.silent_since >= _PATIENCE_S:
                worker.silent_since = _WARNED
                logger.warning(
                    "worker %s: nothing answers at events=%s, so nothing counts as cached there",
                    url, worker.described.events,
                )  # fmt: skip

    def _subscribe(self, worker: Worker) -> None:
        events, replay, ranks = worker.described.publisher
        if events is None:
            return
        try:
            if not self._is_indexing:
                self._is_indexing = True
                self.index.start()
            self.index.add(EventSource(worker.url, events, replay, ranks=ranks))
        except (InputValueError, LimitError) as error:
            logger.error("worker %s: no KV events: %s", worker.url, error)  # noqa: TRY400

    def _remove(self, url: str) -> None:
        worker = self.workers.pop(url)
        worker.close()
        metrics.GATEWAY_MISNAMED.labels(url).set(0)
        self._unsubscribe(worker)

    def _unsubscribe(self, worker: Worker) -> None:
        if worker.described.events is not None:
            with suppress(InputValueError):
                self.index.remove(worker.url)

    def _start_checks(self, workers: Iterable[Worker], wait_s: float = 0.0) -> None:
        """Start a task for each worker, a moment apart: many probes at once delay requests."""
        for number, worker in enumerate(workers):
            checks = self._check_often(worker, wait_s + number * PROBE_SPACING_S)
            task = asyncio.create_task(checks)
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _check_often(self, worker: Worker, wait_s: float) -> None:
        """Probe a worker until it has left and its last request has ended."""
        await asyncio.sleep(wait_s)
        while self.workers.get(worker.url) is worker or worker.requests:
            before = worker.models
            try:
                await self._check(worker)
            except Exception:
                # Continue: without probes the worker's state would never change.
                logger.exception("worker %s: probe failed", worker.url)
            if worker.models != before:  # comparing at every probe would be quadratic
                self._compare_models()
            await asyncio.sleep(self._settings.health_interval_s)

    async def _check(self, worker: Worker) -> None:
        """Probe a worker once."""
        try:
            async with asyncio.timeout(self._settings.health_timeout_s):
                await self._probe(worker)
        except (WorkerError, TimeoutError) as error:
            reason = str(error) or f"no answer within {self._settings.health_timeout_s:g} s"
            if reason != worker.probe_failure:  # log each reason once
                worker.probe_failure = reason
                logger.warning("worker %s: probe failed: %s", worker.url, reason)
            is_silent = isinstance(error, TimeoutError) or error.is_silent
            if worker.fail(is_silent=is_silent):
                self._note_ejection(worker)
        else:
            worker.probe_failure = ""
            await self._list_models(worker)  # before the worker gets requests
            if not worker.is_healthy or worker.engine is None:
                await self._describe(worker)
                await self._ask_plugin(worker)
            if worker.readmit():
                logger.info("worker %s is healthy", worker.url)

    async def _probe(self, worker: Worker) -> None:
        timeout_s = self._settings.health_timeout_s
        status, _ = await worker.probe(b"/health", timeout_s)
        if status >= 500:
            raise WorkerError(f"/health answers {status}")

    async def _describe(self, worker: Worker) -> None:
        """Ask a worker to describe itself, and subscribe to its KV events. Settings override it."""
        timeout_s = self._settings.health_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                said = await describe(partial(worker.probe, timeout_s=timeout_s), worker.host)
        except (WorkerError, TimeoutError) as error:
            logger.info("worker %s does not describe itself: %r", worker.url, error)
            return
        before, found = worker.described, complete(worker.spec, said)
        worker.release = said.engine.name if said else ""
        is_moved = found.publisher != before.publisher
        if is_moved:
            self._unsubscribe(worker)
        worker.note_description(found)
        if is_moved:
            self._subscribe(worker)
        if found.engine != before.engine:
            logger.info("plans for worker %s assume %s", worker.url, found.engine)
        for member, reason in found.lacking.items() if found.lacking != before.lacking else ():
            logger.warning(
                "worker %s: its %s is unknown: %s. To set it, add %s= to the worker",
                worker.url, member, reason, member,
            )  # fmt: skip
        planned = worker.spec.engine.name
        if planned and said and not f"{worker.release}@".startswith(f"{planned}@"):
            logger.warning(
                "worker %s reports %s, but plans assume engine=%s: if the two name blocks "
                "differently, every lookup misses",
                worker.url, worker.release, planned,
            )  # fmt: skip

    async def _ask_plugin(self, worker: Worker) -> None:
        """Ask an SGLang server whether mmhash's plugin names its media. Plans depend on that."""
        engine = worker.engine
        if engine is None or engine.name.partition("@")[0] != "sglang":
            return
        timeout_s = self._settings.health_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                worker.note_plugin(read_plugin(*await worker.probe(PLUGIN_PATH, timeout_s)))
        except (WorkerError, TimeoutError) as error:
            logger.info("worker %s does not say whether it has the plugin: %r", worker.url, error)
            return
        if engine.server == "mmhash" and "keys" not in (worker.plugin or ()):
            logger.warning(
                "plans for worker %s assume server=mmhash, but its GET /mmhash does not list "
                "`keys`: set MMHASH_PLUGIN=keys there, or lookups miss every image", worker.url,
            )  # fmt: skip

    async def _list_models(self, worker: Worker) -> None:
        """Ask a worker for its models. Keep the previous list if the worker does not answer."""
        timeout_s = self._settings.health_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                answer = await worker.probe(b"/v1/models", timeout_s)
        except (WorkerError, TimeoutError) as error:
            logger.info("worker %s does not list its models: %r", worker.url, error)
        else:
            worker.note_models(*read_model_list(*answer))


def workers_for(model: str, workers: Sequence[Worker]) -> Sequence[Worker]:
    """Return the workers that may get a request for a model, or for "" if it names none.

    A worker whose list is unknown may have any model.
    """
    listing = [worker for worker in workers if model in worker.models]
    if not listing:
        return workers
    able = [worker for worker in workers if not worker.models or model in worker.models]
    if any(worker.is_healthy for worker in able):
        return able
    # The name may be an adapter's: another worker with the same base model may load the adapter.
    related = frozenset().union(*(worker.models for worker in listing))
    return [worker for worker in workers if not worker.models or worker.models.keys() & related]
