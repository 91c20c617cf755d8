"""Compare plans with transformers' processors over random sizes: `make oracle`."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmhash.prompts.families import registry
from mmhash.prompts.loading import read_directory
from tests.oracle import environment
from tests.oracle.compare import difference
from tests.oracle.models import MODELS

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors" / "prompts"
_FILES = (
    "config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "tokenizer_config.json",
)


def answers(name: str, folder: Path, sizes: int, pixels: int) -> Iterator[dict[str, Any]]:
    """Yield the oracle's answers; the first names its release and the sizes with pixels."""
    command = [environment.PYTHON, "-W", "ignore", "-m", "tests.oracle.answer", str(folder), name]
    with subprocess.Popen(
        [*command, str(sizes), str(pixels)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise SystemExit(f"the oracle failed for {name}")


def compare(name: str, folder: Path, sizes: int, pixels: int) -> bool:
    """Print how many sizes of a model are equal; return if all are."""
    begin = time.perf_counter()
    oracle = answers(name, folder, sizes, pixels)
    head = next(oracle)
    family = registry.find(read_directory(folder))
    compared = equal = prompts = refused = 0
    for answer in oracle:
        found = difference(family, MODELS[name].modality, answer)
        number = len(answer["items"])
        compared, prompts = compared + number, prompts + 1
        refused += number if "error" in answer else 0
        equal += number if found is None else 0
        if found is not None and compared - equal < 5:
            print(f"  {name}: {found}: {json.dumps(answer)[:300]}")
    print(
        f"{name:24} {compared:6} sizes in {prompts:5} prompts, {equal:6} equal, {refused:5} refused"
        f" by both, {head['pixels']} also with pixels, transformers {head['transformers']},"
        f" {time.perf_counter() - begin:.0f} s",
        flush=True,
    )
    return equal == compared


def write_vectors(name: str, folder: Path, sizes: int) -> None:
    """Write answers for the suite, with the model's files."""
    head, *lines = answers(name, folder, sizes, 0)
    present = [file for file in _FILES if (folder / file).exists()]
    vectors = {
        "transformers": head["transformers"],
        "modality": MODELS[name].modality,
        "special": MODELS[name].special,
        "files": {file: json.loads((folder / file).read_text()) for file in present},
    }
    text = json.dumps(vectors, indent=1)[:-2] + ',\n "answers": [\n'
    text += ",\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    VECTORS.mkdir(exist_ok=True)
    (VECTORS / f"{name}.json").write_text(text + "\n ]\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--sizes", type=int, help="sizes per model")
    parser.add_argument("--pixels", type=int, default=300, help="sizes to process with pixels too")
    parser.add_argument("--vectors", action="store_true", help="write the vectors of the suite")
    arguments = parser.parse_args()
    environment.build()
    right = True
    with tempfile.TemporaryDirectory() as directory:
        for name in arguments.models:
            folder = Path(directory) / name
            if arguments.vectors:
                write_vectors(name, folder, arguments.sizes or MODELS[name].vectors)
            else:
                sizes = arguments.sizes or MODELS[name].size
                right &= compare(name, folder, sizes, arguments.pixels)
    sys.exit(not right)


if __name__ == "__main__":
    main()
