"""What precomputed features cost SGLang's scheduler, with and without the plugin.

`PYTHON bench/plugin_features.py MODEL`: PYTHON is that of an environment with SGLang and mmhash,
MODEL the directory of a Qwen2-VL, which gets random weights. Each request has a feature of 20 MB
that the engine has not seen. Printed for each value of MMHASH_PLUGIN: the CPU time of the
scheduler's process and the time of a whole request, in medians, and whether the tokenizer has named
the item, by the engine's own hash or by mmhash's key.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

MODES = ("", "features", "keys,features")
REQUESTS = 8
ROWS, COLUMNS = 64, 66
PATCH = 1176
IMAGE_PAD = "<|image_pad|>"


def main() -> None:
    """Measure each mode in a process of its own: plugins are loaded once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(str(given.model))))
        return
    for mode in MODES:
        done = subprocess.run(
            [sys.executable, __file__, str(given.model), "--one"],
            env=os.environ | {"MMHASH_PLUGIN": mode},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        print(f"{mode or 'without the plugin':<20} {done.stdout.splitlines()[-1]}", flush=True)


def measure(model: str) -> dict[str, Any]:
    """Return the figures of a running engine."""
    import sglang  # noqa: PLC0415  (this module is also read without SGLang)
    import torch  # noqa: PLC0415
    from sglang.srt.managers.tokenizer_manager import TokenizerManager  # noqa: PLC0415
    from transformers import AutoTokenizer  # noqa: PLC0415

    named: list[int | None] = []
    original = TokenizerManager._create_tokenized_object

    def create(*arguments: Any, **options: Any) -> Any:
        items = [one for one in arguments if hasattr(one, "mm_items")]
        named.extend(item.hash for one in items for item in one.mm_items)
        return original(*arguments, **options)

    TokenizerManager._create_tokenized_object = create
    engine = sglang.Engine(
        model_path=model,
        load_format="dummy",
        dtype="float32",
        device="cpu",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        grammar_backend="none",
        disable_overlap_schedule=True,
        disable_cuda_graph=True,
        context_length=2048,
        max_total_tokens=16384,
        mem_fraction_static=0.3,
        sleep_on_idle=True,
        skip_server_warmup=True,
        log_level="error",
    )
    pad = AutoTokenizer.from_pretrained(model).convert_tokens_to_ids(IMAGE_PAD)
    ids = [1, *([pad] * (ROWS * COLUMNS // 4)), 2, 3]
    scheduler = _scheduler()
    cpu, wall, expected = [], [], []
    for _ in range(REQUESTS + 1):
        feature = torch.rand(ROWS * COLUMNS, PATCH)
        grid = torch.tensor([[1, ROWS, COLUMNS]])
        item = {"format": "processor_output", "pixel_values": feature, "image_grid_thw": grid}
        before, start = _cpu_s(scheduler), time.perf_counter()
        engine.generate(input_ids=ids, image_data=[item], sampling_params={"max_new_tokens": 1})
        wall.append(time.perf_counter() - start)
        cpu.append(_cpu_s(scheduler) - before)
        expected.append(_names(feature))
    engine.shutdown()
    kinds = {
        next((kind for kind, value in names.items() if value == got), "not in the tokenizer")
        for names, got in zip(expected, named, strict=True)
    }
    return {
        "scheduler_cpu_ms": round(median(cpu[1:]) * 1e3),
        "request_ms": round(median(wall[1:]) * 1e3),
        "named_by": sorted(kinds),
    }


def _names(feature: Any) -> dict[str, int]:
    from sglang.srt.managers.mm_utils import hash_feature  # noqa: PLC0415

    import mmhash  # noqa: PLC0415

    return {"SGLang's hash": hash_feature(feature), "mmhash's key": mmhash.key(feature).u64}


def _scheduler() -> int:
    """Return the process id of the scheduler, a child of this process."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                is_child = f"PPid:\t{os.getpid()}\n" in (folder / "status").read_text()
                if is_child and b"sglang::scheduler" in (folder / "cmdline").read_bytes():
                    return int(folder.name)
            except OSError:
                continue
    raise SystemExit("no scheduler is running")


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
