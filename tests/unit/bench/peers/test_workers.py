"""A simulated worker: its cache, its counters, its events, and its end."""

from bench.fleet.replay import replay
from bench.fleet.simulation import Speed
from bench.fleet.traces import BLOCK_SIZE
from bench.peers.workers import plan_all, simulated
from bench.trace.records import Message, Request, Text
from mmhash.kvindex import Index, Worker
from tests.support.waiting import wait_until

TOKENS = 200


def chat(session: str, *texts: str) -> Request:
    messages = tuple(Message("user", (Text(text, TOKENS),)) for text in texts)
    return Request(0.0, "client", "", session, 0, messages, output_tokens=1)


def test_a_worker_keeps_and_publishes_its_blocks_until_it_is_killed() -> None:
    one, longer, others = chat("one", "a"), chat("longer", "a", "b"), chat("others", *"cdefg")
    plans = plan_all([one, longer, others])
    with simulated(plans, [Speed(100_000, 0)], cache_tokens=1024) as (worker,):
        url, target = worker.target.url, worker.target

        def cached(request: Request) -> int:
            (answer,) = replay(url, [request])
            return answer.cached_tokens

        assert cached(one) == 0
        assert cached(longer) == TOKENS // BLOCK_SIZE * BLOCK_SIZE
        with Index([Worker(url, target.events, target.replay)]) as index:
            blocks = plans.by_user["longer.0"].event_ids

            def held() -> int:
                return index.match(blocks, 1)[url].tokens

            wait_until(lambda: held() == len(blocks))  # by a replay
            assert cached(others) == 0
            wait_until(lambda: held() < len(blocks))  # evicted for others
        assert cached(longer) < 2 * TOKENS
        worker.kill()
        worker.start()
        worker.wait()
        assert cached(one) == 0
