"""What an image's name costs SGLang's scheduler, with and without the plugin.

`PYTHON -m bench.plugin_features MODEL`: PYTHON is that of an environment with SGLang and mmhash,
MODEL the directory of a Qwen2-VL with a large max_pixels, which gets random weights. Each request
has an image that the engine has not seen, with features of 20 MB. Printed for each value of
MMHASH_PLUGIN: the CPU time of the scheduler and the time of a whole request, in medians, and by
which hash the tokenizer has named the image. "SGLang's hash" means that its pads are those without
the plugin.
"""

import argparse
import base64
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from PIL import Image

import mmhash

MODES = ("", "features", "keys,features")
REQUESTS = 12
WIDTH, HEIGHT = 64 * 14, 66 * 14
TEXT = "<|vision_start|><|image_pad|><|vision_end|>What is it?"


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
            [sys.executable, "-m", "bench.plugin_features", str(given.model), "--one"],
            env=os.environ | {"MMHASH_PLUGIN": mode},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        print(f"{mode or 'without the plugin':<20} {done.stdout.splitlines()[-1]}", flush=True)


def measure(model: str) -> dict[str, Any]:
    """Return the figures of a running engine."""
    import sglang  # noqa: PLC0415  (this module is also read without SGLang)
    from sglang.srt.managers.tokenizer_manager import TokenizerManager  # noqa: PLC0415

    named: list[dict[str, int | None]] = []
    original = TokenizerManager._create_tokenized_object

    def create(*arguments: Any, **options: Any) -> Any:
        items = [one for one in arguments if hasattr(one, "mm_items")]
        named.extend(_names(item) for one in items for item in one.mm_items)
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
    scheduler = _scheduler()
    cpu, wall, kinds, nbytes = [], [], set(), 0
    for _ in range(REQUESTS + 1):
        file = _file()
        image = "data:image/bmp;base64," + base64.b64encode(file).decode()
        before, start = _cpu_s(scheduler), time.perf_counter()
        engine.generate(TEXT, image_data=[image], sampling_params={"max_new_tokens": 1})
        wall.append(time.perf_counter() - start)
        cpu.append(_cpu_s(scheduler) - before)
        found = named[-1]
        expected = {mmhash.key(file).u64: "mmhash's key", found["own"]: "SGLang's hash"}
        kinds.add(expected.get(found["hash"], "not in the tokenizer"))
        nbytes = int(found["nbytes"] or 0)
    engine.shutdown()
    return {
        "scheduler_cpu_ms": round(median(cpu[1:]) * 1e3, 1),
        "request_ms": round(median(wall[1:]) * 1e3),
        "named_by": sorted(kinds),
        "feature_bytes": nbytes,
    }


def _file() -> bytes:
    """Return an image that no engine has seen, in a format that takes no time to decode."""
    buffer = io.BytesIO()
    Image.frombytes("RGB", (WIDTH, HEIGHT), os.urandom(3 * WIDTH * HEIGHT)).save(buffer, "BMP")
    return buffer.getvalue()


def _names(item: Any) -> dict[str, int | None]:
    from sglang.srt.managers.mm_utils import hash_feature  # noqa: PLC0415

    feature = getattr(item.feature, "tensor", item.feature)
    return {"hash": item.hash, "own": hash_feature(feature), "nbytes": feature.nbytes}


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
    """Return the CPU time of the main thread, in which a scheduler hashes."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main()
