"""A trace written as JSON lines."""

import json
from dataclasses import replace
from pathlib import Path

from bench.trace.records import write_jsonl
from bench.trace.workload import AGENTS, generate


def test_a_line_has_ids_and_sizes(tmp_path: Path) -> None:
    (request, *_) = trace = generate(replace(AGENTS, sessions=1))
    write_jsonl(trace, tmp_path / "trace.jsonl")
    lines = (tmp_path / "trace.jsonl").read_text().splitlines()
    assert len(lines) == len(trace)
    line = json.loads(lines[0])
    image, text = line["messages"][0]["content"]
    assert (line["client"], line["session"], line["turn"]) == (request.client, "s0", 0)
    assert image.keys() == {"image", "width", "height"}
    assert text == {"text": "s0.0.question", "tokens": request.new_text_tokens}
