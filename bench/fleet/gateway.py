"""Runs `mmhash gateway` in front of workers, in its own process."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx

from bench.fleet.workers import MODEL
from bench.support.servers import running
from tests.live.engines import Engine

POLICIES = ("longest-prefix", "round-robin", "least-load", "consistent-hash")


def specification(worker: Engine) -> str:
    """Return a worker in the form that `--worker` takes."""
    events = f"events={worker.events.endpoint},replay={worker.replay}"
    return f"{worker.url},{events},engine={worker.spelling},block_size={worker.block_size}"


@contextmanager
def gateway(workers: Sequence[Engine], policy: str) -> Iterator[str]:
    """Run a gateway with one policy. Yield its URL."""
    given = [word for worker in workers for word in ("--worker", specification(worker))]
    models = json.dumps({"tiny": str(workers[0].environment.model(MODEL))})
    given += ["--policy", policy, "--set", f"models={models}"]
    # An engine on a busy core answers probes late. That must not abort its requests.
    given += ["--set", "gateway.health_timeout_s=60"]
    with running("mmhash", "gateway", *given) as url:
        httpx.get(f"{url}/ready", timeout=60, trust_env=False).raise_for_status()
        yield url
