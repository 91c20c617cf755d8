"""Compares plans by a built-in family with plans by the model's own processor.

The request is a chat with an image of 1280 by 720 pixels and 500 random characters. Both plan it
for the same directory of Qwen2-VL, in turns. A known size is measured in CPU time of this process.
An unknown size is measured in elapsed time, which includes the processor's helper process.
"""

import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from bench.support.measure import Row, medians_of, report
from mmhash.hashing import key
from mmhash.prompts import Media, MediaSize, Model
from mmhash.prompts.families.processed import Processed
from tests.live import models as tiny_models

ENGINE, RELEASE = "vllm", "0.32.0"
PLANS, ROUNDS, UNKNOWN = 50, 15, 40
URL = "http://images.example/0.jpg"


def request() -> bytes:
    """Return a chat with an image and a new text."""
    text = "".join(random.choices("abcdefgh ", k=500))
    content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": URL}}]
    return json.dumps({"messages": [{"role": "user", "content": content}]}).encode()


def plan(model: Model, size: MediaSize) -> None:
    """Plan a new request with an image of this size."""
    model.plan(request(), f"{ENGINE}@{RELEASE}", media={URL: Media(size, key(b"image"))})


def with_processor(folder: Path) -> Model:
    """Return the model without its built-in family."""
    model = Model.load(folder)
    files = replace(model.files, unchecked=True)
    model._families[ENGINE, RELEASE] = Processed(files, ENGINE, RELEASE)
    return model


def cpu_seconds(model: Model) -> Callable[[], float]:
    """Return a function that measures the CPU time of a plan of a known size."""

    def seconds() -> float:
        start = time.process_time()
        for _ in range(PLANS):
            plan(model, MediaSize(1280, 720))
        return (time.process_time() - start) / PLANS

    return seconds


def seconds_of_new(model: Model, sizes: Iterator[int]) -> list[float]:
    """Return the seconds that a plan takes for each new size."""
    seconds = []
    for width in sizes:
        start = time.perf_counter()
        plan(model, MediaSize(width, 720))
        seconds.append(time.perf_counter() - start)
    return seconds


def children_mib() -> float:
    """Return the memory of the helper and of its worker. Shared pages count once."""
    processes, total = {os.getpid()}, 0
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in processes:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += int(next(line for line in lines if line.startswith("Pss:")).split()[1])
                processes.add(int(folder.name))
        except OSError:
            continue
    return total / 1024


def rows(folder: Path) -> list[Row]:
    """Return the times, the start and the memory."""
    tiny_models.write("qwen2_vl", folder)
    begin = time.perf_counter()
    model = with_processor(folder)  # this asks the helper which tokens its processor replaces
    start = time.perf_counter() - begin
    built_in = Model.load(folder)
    widths = count(1281)
    seconds_of_new(model, iter([next(widths)]))  # at first, the processor tries once without values
    new = seconds_of_new(model, iter([next(widths) for _ in range(UNKNOWN)]))
    times = {"known": cpu_seconds(model), "built-in": cpu_seconds(built_in)}
    known, family = medians_of(times, rounds=ROUNDS)
    return [
        Row("plan of an unknown size, median", statistics.median(new) * 1e3, "ms"),
        Row("plan of an unknown size, slowest of 40", max(new) * 1e3, "ms"),
        Row("plan of a known size", known * 1e6, "µs", "built-in family", family * 1e6,
            family / known, "within 10 %"),
        Row("start of the helper", start, "s"),
        Row("memory of the helper and its worker", children_mib(), "MiB"),
    ]  # fmt: skip


if __name__ == "__main__":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        report("processors", rows(Path(name)))
