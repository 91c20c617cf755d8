"""Compare plans by a model's own processor with vLLM's input processing: every type that both know.

`python -m tests.oracle.processed --sizes 12 qwen3_5`; all types without names, also by `make oracle`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from mmhash.errors import MMHashError
from mmhash.prompts.expansion import expand
from mmhash.prompts.families import registry
from mmhash.prompts.families.family import Family
from mmhash.prompts.families.processed import Processed
from mmhash.prompts.loading import read_directory
from mmhash.prompts.processor.client import ModelProcessor
from mmhash.prompts.section import UnknownModelError
from tests.live.environments import Environment
from tests.oracle.compare import media_size

ROOT = Path(__file__).parents[2]
RELEASE = "0.32.0"


def answers(folder: str, sizes: int, types: list[str]) -> Iterator[dict[str, Any]]:
    """Yield vLLM's answers."""
    environment = Environment("vllm", RELEASE)
    environment.build()
    command = [str(environment.command("python")), "-W", "ignore", "-m", "tests.oracle.vllm_inputs"]
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*command, folder, str(sizes), *types],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | quiet,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)


def _family(folder: Path) -> Family:
    """Return the family that plans use, or that of a model marked as unchecked."""
    # A busy machine is no reason to count an item as refused.
    processor = ModelProcessor(folder, question_s=120.0)
    files = replace(read_directory(folder), model_processor=processor)
    try:
        return registry.find(files, "vllm", RELEASE)
    except UnknownModelError:
        return Processed(replace(files, unchecked=True), "vllm", RELEASE)


def compare(family: Family, answer: dict[str, Any]) -> str:
    """Return equal, refused by vLLM, refused by the processor only, or different."""
    items = [(modality, media_size(item)) for modality, item in answer["items"]]
    if any(modality not in family.placeholders for modality, _ in items):
        return "not planned"
    if "error" in answer:
        return "refused"
    try:
        token_ids, placed = expand(family, answer["prompt"], items, {})
    except MMHashError:
        return "refused here"
    ids = list(chain.from_iterable(repeat(token, count) for token, count in answer["ids"]))
    spans = [[item.start, item.end] for item in placed]
    if token_ids == ids and spans == answer["spans"]:
        return "equal"
    print(f"  {answer['items']}: {len(token_ids)} ids, not {len(ids)}; {spans}, {answer['spans']}")
    return "DIFFERENT"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.processed", description=__doc__)
    parser.add_argument("types", nargs="*", metavar="TYPE")
    parser.add_argument("--sizes", type=int, default=2000, help="images per type")
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    name, family, sizes = "", None, 0
    with tempfile.TemporaryDirectory() as folder:
        for answer in chain(answers(folder, arguments.sizes, arguments.types), [{"type": ""}]):
            if "type" not in answer:
                if family is not None:
                    found[compare(family, answer)] += 1
                    sizes += len(answer["items"])
                continue
            if found and family is not None:
                kinds[_print(name, family, found, sizes)] += 1
            found.clear()
            sizes = 0
            name, family = answer["type"], None
            if "why" in answer:
                print(f"{name:24} not constructible: {answer['why'].splitlines()[0]}", flush=True)
            elif name:
                try:
                    family = _family(Path(folder) / name)
                except MMHashError as error:
                    print(f"{name:24} not loaded: {str(error)[:200]}", flush=True)
    print(", ".join(f"{count} types {kind}" for kind, count in kinds.items()))
    sys.exit(kinds["DIFFERENT"])


def _print(name: str, family: Family, found: "Counter[str]", sizes: int) -> str:
    """Print a type's results, and return their summary."""
    is_unchecked = isinstance(family, Processed) and family.files.unchecked
    kind = "unchecked" if is_unchecked else type(family).__name__
    results = ", ".join(f"{count} {result}" for result, count in sorted(found.items()))
    print(f"{name:24} {kind:14} {sizes:5} sizes: prompts {results}", flush=True)
    if is_unchecked:
        return "unchecked"
    return "DIFFERENT" if found["DIFFERENT"] else "equal" if found["equal"] else "refused"


if __name__ == "__main__":
    main()
