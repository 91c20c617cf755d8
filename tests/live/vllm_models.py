"""Runs small models of many types in vLLM's own engine, and prints what the engine stored.

`python -m tests.live.vllm_models FOLDER TYPE…` needs vLLM. It writes the models, with random
weights, and prints a line. Then, for each type, it reads a JSON line with requests, and prints a
line with the ids of their prompts and the events of the cache. Each engine runs in its own process,
which is forked after vLLM is imported.
"""

import base64
import gc
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

# Limit each number in config.json to this, so that an engine starts in seconds.
_SMALL = {
    "vocab_size": 2048,
    "vocab_size_per_layer_input": 2048,
    "hidden_size": 128,
    "hidden_size_per_layer_input": 32,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "depth": 2,
    "num_heads": 2,
    "out_hidden_size": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "n_routed_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 2,
    "q_lora_rank": 64,
    "projection_hidden_size": 128,
    "alignment_intermediate_size": 256,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 128,
    "d_model": 128,
    "output_dim": 128,
    "insert_layer_id": 0,
}

# All CPUs are fast with float32, but vLLM's linear attention and MLA do not take it there.
_NEED_BFLOAT16 = {"kimi_k25", "minicpmv4_7", "qwen3_5", "qwen3_5_moe"}

_TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% elif part['type'] == 'audio' %}AUDIO"
    "{% elif part['type'] == 'video' %}VIDEO"
    "{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}"
)


def _shrink(config: dict[str, Any]) -> None:
    layers = config.get("num_hidden_layers")
    for name, value in config.items():
        if name == "per_layer_config":
            config[name] = {}
        elif isinstance(value, dict):
            _shrink(value)
        elif isinstance(value, list) and len(value) == layers:
            config[name] = [value[0], value[-1]]
        elif type(value) is int and name in _SMALL:
            config[name] = min(value, _SMALL[name])
    if config.get("kv_lora_rank"):  # its attention has as many keys as queries
        config["num_key_value_heads"] = config["num_attention_heads"]
    if "max_position_embeddings" in config:
        config["max_position_embeddings"] = 16384


def _write(kind: str, folder: Path) -> None:
    from tests.oracle import tiny
    from tests.oracle.vllm_inputs import Engine

    tiny.write(kind, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    _shrink(config)
    processor = json.loads((folder / "processor_config.json").read_text())
    patch = processor.get("image_processor", {}).get("patch_size")
    if isinstance(patch, int):
        config["vision_config"]["patch_size"] = patch
    for part in (config, config.get("text_config", {})):
        ends = [name for name in ("bos_token_id", "eos_token_id", "pad_token_id") if part.get(name)]
        part.update(dict.fromkeys(ends, 2))
    path.write_text(json.dumps(config))
    texts = Engine(folder).texts
    template = _TEMPLATE
    for modality in ("image", "audio", "video"):
        template = template.replace(modality.upper(), texts.get(modality, ""))
    (folder / "chat_template.jinja").write_text(template)


def _run(folder: Path, requests: list[dict[str, Any]]) -> dict[str, Any]:
    import zmq
    from vllm import LLM, SamplingParams

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{port}"}
    llm = LLM(
        str(folder),
        dtype="bfloat16" if folder.name in _NEED_BFLOAT16 else "float32",
        load_format="dummy",
        enforce_eager=True,
        max_model_len=8192,
        block_size=32,
        num_gpu_blocks_override=1024,  # by default, each engine fills 1 GiB with zeros
        skip_mm_profiling=True,
        limit_mm_per_prompt={"image": 4, "audio": 4, "video": 1},
        kv_events_config=events,
    )
    subscriber: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    subscriber.connect(f"tcp://127.0.0.1:{port}")
    time.sleep(0.5)
    answers = []
    for request in requests:
        (made,) = llm.chat(request["messages"], SamplingParams(max_tokens=1), use_tqdm=False)
        batches: list[str] = []
        while subscriber.poll(1000 if not batches else 100):
            batches.append(base64.b64encode(subscriber.recv_multipart()[-1]).decode())
        answers.append({"ids": made.prompt_token_ids, "batches": batches})
    return {"answers": answers}


def _forked(folder: Path, requests: list[dict[str, Any]], output: Any) -> None:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        answer = _run(folder, requests)
    except Exception as error:  # noqa: BLE001  (any reason is printed)
        answer = {"error": f"{type(error).__name__}: {error}"[-400:]}
    print(json.dumps({"type": folder.name} | answer), file=output, flush=True)
    os._exit(0)


def main() -> None:
    root, *kinds = sys.argv[1:]
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Import before the forks what each engine would import.
    import vllm.entrypoints.llm
    import vllm.v1.worker.cpu_worker  # noqa: F401
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()  # a process per type is slow
    for kind in kinds:
        _write(kind, Path(root) / kind)
    gc.freeze()
    print("written", file=output, flush=True)
    for kind in kinds:
        _forked(Path(root) / kind, json.loads(sys.stdin.readline()), output)


if __name__ == "__main__":
    main()
