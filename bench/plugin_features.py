"""What an image's name costs SGLang's scheduler and tokenizer, with and without the plugin.

`PYTHON -m bench.plugin_features MODEL`: PYTHON is that of an environment with SGLang and mmhash,
MODEL the directory of a Qwen2-VL with a large max_pixels, which gets random weights. The requests
have the same features of 20 MB, of an image or as the caller has computed them: SGLang hashes them
each time, and has everything else in its caches. Printed for each value of MMHASH_PLUGIN, in
medians: the CPU time of the scheduler, the longest time that the tokenizer's event loop stood
still, and the time of a whole request. Also by which hash the tokenizer has named the image:
"SGLang's hash" means that its pads are those without the plugin.
"""

import argparse
import asyncio
import base64
import io
import json
import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image

import mmhash

MODES = ("", "features", "keys,features")
KINDS = ("image", "features")
REQUESTS = 12
COLUMNS, ROWS, PATCH = 64, 66, 14
VALUES = 3 * 2 * PATCH * PATCH
"""The values of a patch: three colours in two frames."""
TEXT = "<|vision_start|><|image_pad|><|vision_end|>What is it?"


def main() -> None:
    """Measure each mode in a process of its own: plugins are loaded once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(asyncio.run(measure(str(given.model), given.one))))
        return
    for kind, mode in product(KINDS, MODES):
        done = subprocess.run(
            [sys.executable, "-m", "bench.plugin_features", str(given.model), "--one", kind],
            env=os.environ | {"MMHASH_PLUGIN": mode},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        found = done.stdout.splitlines()[-1]
        print(f"{kind:<9} {mode or 'without the plugin':<20} {found}", flush=True)


async def measure(model: str, kind: str) -> dict[str, Any]:
    """Return the figures of a running engine."""
    import sglang  # noqa: PLC0415  (this module is also read without SGLang)
    from sglang.srt.managers.mm_utils import hash_feature  # noqa: PLC0415
    from sglang.srt.managers.tokenizer_manager import TokenizerManager  # noqa: PLC0415

    named: list[tuple[int | None, Any]] = []
    original = TokenizerManager._create_tokenized_object

    def create(*arguments: Any, **options: Any) -> Any:
        items = [one for one in arguments if hasattr(one, "mm_items")]
        named.extend((item.hash, item.feature) for one in items for item in one.mm_items)
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
    cpu, stalls, wall, kinds = [], [], [], set()
    file, request = _request(kind, engine.tokenizer_manager.tokenizer)
    for _ in range(REQUESTS + 1):
        before, start = _cpu_s(scheduler), time.perf_counter()
        watch = asyncio.create_task(_longest_stall())
        await asyncio.sleep(0)
        await engine.async_generate(**request, sampling_params={"max_new_tokens": 1})
        wall.append(time.perf_counter() - start)
        watch.cancel()
        stalls.append(await watch)
        cpu.append(_cpu_s(scheduler) - before)
        name, feature = named[-1]
        expected = {
            hash_feature(feature): "SGLang's hash",
            mmhash.key(feature).u64: "mmhash's key of the features",
        }
        if file is not None:
            expected[mmhash.key(file).u64] = "mmhash's key of the file"
        kinds.add(expected.get(name, "not in the tokenizer"))
    engine.shutdown()
    return {
        "scheduler_cpu_ms": round(median(cpu[1:]) * 1e3, 1),
        "loop_stall_ms": round(median(stalls[1:]) * 1e3, 1),
        "request_ms": round(median(wall[1:]) * 1e3),
        "named_by": sorted(kinds),
        "feature_bytes": int(named[-1][1].nbytes),
    }


async def _longest_stall() -> float:
    """Return the longest time in which the event loop did nothing else, until cancelled."""
    longest, last = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        return longest


def _request(kind: str, tokenizer: Any) -> tuple[bytes | None, dict[str, Any]]:
    """Return the file and the request of an image, or None and the request of its features."""
    if kind == "image":
        size = (COLUMNS * PATCH, ROWS * PATCH)
        buffer = io.BytesIO()  # of a format that takes no time to decode
        Image.frombytes("RGB", size, os.urandom(3 * size[0] * size[1])).save(buffer, "BMP")
        url = "data:image/bmp;base64," + base64.b64encode(buffer.getvalue()).decode()
        return buffer.getvalue(), {"prompt": TEXT, "image_data": [url]}
    import torch  # noqa: PLC0415

    pad = "<|image_pad|>"
    text = TEXT.replace(pad, pad * (COLUMNS * ROWS // 4))
    values = np.random.default_rng().standard_normal((COLUMNS * ROWS, VALUES), np.float32)
    features = {
        "format": "processor_output",
        "pixel_values": torch.from_numpy(values),
        "image_grid_thw": torch.tensor([[1, ROWS, COLUMNS]]),
    }
    return None, {"input_ids": tokenizer.encode(text), "image_data": [features]}


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
