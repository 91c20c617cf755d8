"""Embeds SGLang in Python, and sends the features of two images under one name.

python embedded_sglang.py MODEL    # prints how many tokens of the second were cached, by name
"""

import sys
from typing import Any

import sglang as sgl
from PIL import Image
from transformers import AutoProcessor

import mmhash
from mmhash.engines import sglang

PROMPT = "<|vision_start|><|image_pad|><|vision_end|> what is it"


class Program:
    """An engine, and the processor of its model."""

    def __init__(self, model: str) -> None:
        self._engine = sgl.Engine(
            model_path=model,
            dtype="float32",
            device="cpu",
            attention_backend="torch_native",
            sampling_backend="pytorch",
            grammar_backend="none",
            disable_overlap_schedule=True,
            disable_cuda_graph=True,
            page_size=16,
            context_length=2048,
            max_total_tokens=16384,
            mem_fraction_static=0.3,
            skip_server_warmup=True,
        )
        self._processor = AutoProcessor.from_pretrained(model)

    def features(self) -> dict[str, Any]:
        """Return the features of an image that the engine has not seen."""
        image = Image.effect_noise((224, 224), 50).convert("RGB")
        return dict(self._processor(images=image, text=PROMPT, return_tensors="pt"))

    def send(self, features: dict[str, Any], name: int | None) -> int:
        """Send computed features, maybe under a name. Return the number of cached tokens."""
        answer = self._engine.generate(
            input_ids=features["input_ids"][0].tolist(),
            image_data=[{"format": "processor_output", **features}],
            mm_hashes=None if name is None else [f"{name:016x}"],
            sampling_params={"max_new_tokens": 1},
        )
        return int(answer["meta_info"]["cached_tokens"])

    def run(self) -> None:
        """Print the cached tokens for a forged name, and for two names that the engine may use."""
        self.send(self.features(), 7)
        print("forged:", self.send(self.features(), 7))
        for name in ("key", "own"):
            features = self.features()
            pixels = features["pixel_values"]
            self.send(features, None)
            hash_ = mmhash.key(pixels).u64 if name == "key" else sglang.hash_feature(pixels)
            print(f"{name}:", self.send(self.features(), hash_))


if __name__ == "__main__":
    Program(sys.argv[1]).run()
