"""Measures plans per second on one core, next to transformers' processor of the same model.

The request is a chat of 500 text tokens and four JPEGs of 1280 by 720 pixels. The model is Qwen2-VL
with its default pixel limits and a tokenizer of 32000 tokens, which is trained here. The processor
decodes the images, as an engine's renderer does. It runs in the environment of `make oracle`, and
its token ids must equal the plan's. Both run on one core, in turns. The figures are CPU time, so
other processes of the machine do not count. Each request takes its text from another part of
Python's own modules: the model has seen most words, but not the text. Rows about known texts say
so, because the model's cache holds texts that were planned before.
"""

import base64
import cProfile
import json
import os
import pstats
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from bench.memo import photo
from bench.support.measure import Row, medians_of, report
from mmhash.hashing import key
from mmhash.prompts import Media, MediaSize, Model, Plan
from tests.live import models as tiny_models
from tests.oracle.environment import PYTHON

ENGINE = "vllm@0.32.0"
IMAGES, TEXT_TOKENS, TEXTS = 4, 500, 20
ROUNDS = 9
KNOWN_TEXTS = 200  # the model plans these before the first round
DEFAULTS = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 16384}

# The peer's program. It prints the request's token ids. Then, for each line of input, it processes
# the request and prints the seconds.
PEER = """
import base64, io, json, sys, time
import torch, transformers
from PIL import Image
torch.set_num_threads(1)
folder, request = sys.argv[1:]
tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
settings = json.load(open(folder + "/preprocessor_config.json"))
limits = {name: settings[name] for name in ("min_pixels", "max_pixels")}
processor = transformers.Qwen2VLProcessor(
    image_processor=transformers.Qwen2VLImageProcessor(**limits),
    tokenizer=tokenizer,
    video_processor=transformers.Qwen2VLVideoProcessor(),
    chat_template=json.load(open(folder + "/tokenizer_config.json"))["chat_template"],
)
text = open(request).read()
def process():
    messages = json.loads(text)["messages"]
    parts = [part for message in messages for part in message["content"]]
    images = []
    for part in parts:
        if part["type"] == "image_url":
            content = base64.b64decode(part["image_url"]["url"].partition(",")[2])
            images.append(Image.open(io.BytesIO(content)).convert("RGB"))
    prompt = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return processor(text=[prompt], images=images, return_tensors="pt")["input_ids"][0].tolist()
print(json.dumps(process()), flush=True)
for _ in sys.stdin:
    start = time.process_time()
    process()
    print(time.process_time() - start, flush=True)
"""

FIRST_PLAN = """
import resource, sys, time
from mmhash.prompts import Model
from tokenizers import Tokenizer
Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
request = open(sys.argv[2], "rb").read()
Model.load(sys.argv[1]).plan(request, sys.argv[3])
print(time.perf_counter() - start)
"""


# Train in another process, because training fragments the heap, which slows new texts down.
WRITE_MODEL = """
import sys
from pathlib import Path
from bench.plan import write_model
write_model(Path(sys.argv[1]))
"""


class Peer:
    """transformers' processor in its own environment, on the core of this process."""

    def __init__(self, folder: Path, request: Path) -> None:
        self._process = subprocess.Popen(
            [PYTHON, "-c", PEER, str(folder), str(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.token_ids: list[int] = json.loads(self._read())

    def seconds(self) -> float:
        """Return the seconds that one request took."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return float(self._read())

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def write_model(folder: Path) -> None:
    """Write Qwen2-VL with its default limits, and a tokenizer trained on Python's own modules."""
    tiny_models.write("qwen2_vl", folder)
    special = _special_tokens(folder)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=32_000,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted(map(str, Path(os.__file__).parent.glob("*.py")))
    tokenizer.train(sources, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(settings | DEFAULTS))
    config = json.loads((folder / "config.json").read_text())
    for name, token in (("image", "<|image_pad|>"), ("video", "<|video_pad|>")):
        config[f"{name}_token_id"] = tokenizer.token_to_id(token)
    for place in ("start", "end"):
        config[f"vision_{place}_token_id"] = tokenizer.token_to_id(f"<|vision_{place}|>")
    (folder / "config.json").write_text(json.dumps(config))


def _special_tokens(folder: Path) -> list[str]:
    document = json.loads((folder / "tokenizer.json").read_text())
    return [token["content"] for token in document["added_tokens"]]


def texts_of(folder: Path) -> list[str]:
    """Return Python's own modules, cut into texts of 500 tokens and shuffled."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = []
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        ids = tokenizer.encode(path.read_text(), add_special_tokens=False).ids
        starts = range(0, len(ids) - TEXT_TOKENS, TEXT_TOKENS)
        texts += [tokenizer.decode(ids[start : start + TEXT_TOKENS]) for start in starts]
    random.Random(18).shuffle(texts)
    return texts


def chats(texts: Iterator[str], urls: list[str], count: int = TEXTS) -> list[bytes]:
    """Return requests, each with the next text and then the images."""
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    made = []
    for text in islice(texts, count):
        content = [{"type": "text", "text": text}, *images]
        made.append(json.dumps({"messages": [{"role": "user", "content": content}]}).encode())
    return made


def _seconds_of(plan: Callable[[bytes], Plan], requests: list[bytes]) -> float:
    start = time.process_time()
    for request in requests:
        plan(request)
    return (time.process_time() - start) / len(requests)


def _seconds_of_new(plan: Callable[[bytes], Plan], texts: Iterator[str], urls: list[str]) -> float:
    """Return the seconds that a plan takes if the model has not seen its text."""
    return _seconds_of(plan, chats(texts, urls))


def _seconds_of_first(model: Model, plan: Callable[[bytes], Plan], requests: list[bytes]) -> float:
    """Return the seconds that a plan takes if the model has not seen any text."""
    seconds = 0.0
    for request in requests:
        model.files.encoder.clear()
        seconds += _seconds_of(plan, [request])
    return seconds / len(requests)


def _in_a_process(program: str, *arguments: str) -> float:
    return float(subprocess.check_output([sys.executable, "-c", program, *arguments]))


def _grown_mib(folder: Path, request: bytes) -> float:
    """Return the memory of ten models and a plan by each, without their tokenizers."""
    tokenizers = [Tokenizer.from_file(str(folder / "tokenizer.json")) for _ in range(10)]
    with_tokenizers = _resident() - _BASE
    del tokenizers
    models_ = [Model.load(folder) for _ in range(10)]
    for model in models_:
        model.plan(request, ENGINE)
    return (_resident() - _BASE - with_tokenizers) / 10 / (1 << 20)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


_BASE = _resident()


def rows(folder: Path) -> list[Row]:
    """Return the rates, the first plan and the memory."""
    subprocess.run([sys.executable, "-c", WRITE_MODEL, str(folder)], check=True)
    images = [photo() + bytes([number]) for number in range(IMAGES)]
    urls = [f"http://images.example/{number}.jpg" for number in range(IMAGES)]
    inline = [f"data:image/jpeg;base64,{base64.b64encode(one).decode()}" for one in images]
    texts = iter(texts_of(folder))
    (by_data,) = chats(texts, inline, 1)
    by_url = chats(texts, urls)
    request = folder / "request.json"
    request.write_bytes(by_data)
    known = {
        url: Media(MediaSize(width=1280, height=720), key(image))
        for url, image in zip(urls, images, strict=True)
    }
    memory = _grown_mib(folder, by_data)
    first = _in_a_process(FIRST_PLAN, str(folder), str(request), ENGINE)
    model = Model.load(folder)
    plan_data = partial(model.plan, engine=ENGINE)
    plan_url = partial(model.plan, engine=ENGINE, media=known)
    peer = Peer(folder, request)
    try:
        plan = plan_data(by_data)
        assert plan.token_ids == peer.token_ids
        same = json.loads(by_data)["messages"][0]["content"][0]["text"]
        (named,) = chats(iter([same]), urls)
        assert plan_url(named).token_ids == plan.token_ids
        assert plan_url(named).blocks == plan.blocks
        none_known = _seconds_of_first(model, plan_url, by_url)
        _seconds_of(plan_url, chats(texts, urls, KNOWN_TEXTS))
        data, url, again, theirs = medians_of(
            {
                "data": partial(_seconds_of_new, plan_data, texts, inline),
                "url": partial(_seconds_of_new, plan_url, texts, urls),
                "again": partial(_seconds_of, plan_url, by_url[:1] * TEXTS),
                "transformers": peer.seconds,
            },
            rounds=ROUNDS,
        )
    finally:
        peer.close()
    _profile("data URLs", partial(_seconds_of, plan_data, chats(texts, inline)))
    _profile("known URLs", partial(_seconds_of, plan_url, chats(texts, urls)))
    print(f"{len(plan.token_ids)} tokens, {len(by_data)} bytes, {len(plan.blocks)} blocks")
    return [
        Row("plans by data URLs, one core", 1 / data, "1/s", "transformers", 1 / theirs,
            theirs / data, ">= 30, goal 60"),
        Row("plans by known URLs, one core", 1 / url, "1/s", "transformers", 1 / theirs,
            theirs / url, ">= 150"),
        Row("the same, no word known", 1 / none_known, "1/s", "transformers", 1 / theirs,
            theirs / none_known),
        Row("the same, of known texts", 1 / again, "1/s", "transformers", 1 / theirs,
            theirs / again, ">= 150"),
        Row("first plan of a model", first, "s", target="< 1"),
        Row("memory of a model beside its tokenizer", memory, "MiB", target="< 50"),
    ]  # fmt: skip


def _profile(name: str, call: Any) -> None:
    """Print where the time of a plan goes."""
    profile = cProfile.Profile()
    profile.runcall(call)
    print(f"\n{TEXTS} plans by {name}")
    pstats.Stats(profile).sort_stats("tottime").print_stats(14)


if __name__ == "__main__":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        report("plan", rows(Path(name)))
