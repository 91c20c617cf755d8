"""A trace written as JSON lines, and read again."""

import json
from dataclasses import replace
from pathlib import Path

from bench.trace.records import read_jsonl, write_jsonl
from bench.trace.workload import AGENTS, generate


def test_a_trace_is_the_same_after_a_round_trip(tmp_path: Path) -> None:
    trace = generate(replace(AGENTS, sessions=2))
    write_jsonl(trace, tmp_path / "trace.jsonl")
    assert read_jsonl(tmp_path / "trace.jsonl") == trace


def test_a_line_has_ids_and_sizes(tmp_path: Path) -> None:
    (request, *_) = trace = generate(replace(AGENTS, sessions=1))
    write_jsonl(trace, tmp_path / "trace.jsonl")
    line = json.loads((tmp_path / "trace.jsonl").read_text().splitlines()[0])
    image, text = line["messages"][0]["content"]
    assert (line["client"], line["session"], line["turn"]) == (request.client, "s0", 0)
    assert image.keys() == {"image", "width", "height"}
    assert text == {"text": "s0.0.question", "tokens": request.new_text_tokens}
