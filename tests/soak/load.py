"""The load: a process that asks one service, judges what it says, and goes away now and then."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from mmhash.errors import ServiceError
from tests.soak.context import LoadContext
from tests.soak.questions import Question, question

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

Verdict = Literal["right", "wrong", "lost", "cancelled"]

# So many requests are under way at once, and this share of all is given up before its answer.
SLOTS = 8
CANCELLED = 0.08
# A request that has no answer by then, however often it was sent, is lost.
TIMEOUT_S = 60.0


class Outcome(NamedTuple):
    """The outcome of a request, its duration, and the number of retries."""

    service: str
    kind: str
    verdict: Verdict
    took: float
    sent_again: int
    detail: str = ""


class Load(NamedTuple):
    """The arguments of a load process."""

    number: int
    service: str
    socket: Path
    folder: Path
    origin: str
    rate: float
    until: float


def run(load: Load, outcomes: "Queue[Outcome]") -> None:
    """Ask until the time is over, and wait for the last answers."""
    asyncio.run(_run(load, outcomes))


async def _run(load: Load, outcomes: "Queue[Outcome]") -> None:
    context = LoadContext(load.number, load.socket, load.folder, load.origin)
    async with asyncio.TaskGroup() as slots:
        for _ in range(SLOTS):
            slots.create_task(_slot(load, context, outcomes))
    await context.close()


async def _slot(load: Load, context: LoadContext, outcomes: "Queue[Outcome]") -> None:
    while time.monotonic() < load.until:
        # In a thread, so that to make a long one makes no answer look late.
        one = await asyncio.to_thread(question, context)
        outcomes.put(await _ask(load, context, one))
        await asyncio.sleep(context.draw.expovariate(load.rate / SLOTS))


async def _ask(load: Load, context: LoadContext, one: Question) -> Outcome:
    is_given_up = context.draw.random() < CANCELLED
    # Before the head is sent, in the middle of a body, or while the service works on it.
    patience_s = 10 ** context.draw.uniform(-4, -1) if is_given_up else TIMEOUT_S
    begun = time.monotonic()
    detail = ""
    try:
        async with asyncio.timeout(patience_s):
            said = await one.ask()
    except TimeoutError:
        verdict: Verdict = "cancelled" if is_given_up else "lost"
    except ServiceError as error:
        verdict, detail = "lost", str(error)
    else:
        verdict = judge(one, said)
        detail = "" if verdict == "right" else f"{said!r:.500} is not {one.expected!r:.500}"
    sent_again = context.sent_again.pop(asyncio.current_task(), 0)
    return Outcome(load.service, one.kind, verdict, time.monotonic() - begun, sent_again, detail)


def judge(one: Question, said: object) -> Verdict:
    """Compare the response with the library's."""
    return "right" if said == one.expected else "wrong"
