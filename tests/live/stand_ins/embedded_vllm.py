"""Embeds vLLM in Python, and sends two images under one forged uuid.

python embedded_vllm.py MODEL    # prints how many tokens of the second prompt were cached
"""

import sys

from PIL import Image
from vllm import LLM, SamplingParams

PROMPT = "<|vision_start|><|image_pad|><|vision_end|> what is it"


def main(model: str) -> None:
    """Print the cached tokens of the second prompt."""
    engine = LLM(
        model,
        load_format="dummy",
        dtype="float32",
        max_model_len=2048,
        block_size=32,
        enforce_eager=True,
    )
    for _ in range(2):
        image = Image.effect_noise((224, 224), 50).convert("RGB")
        prompt = {
            "prompt": PROMPT,
            "multi_modal_data": {"image": image},
            "multi_modal_uuids": {"image": ["forged"]},
        }
        (answer,) = engine.generate(prompt, SamplingParams(max_tokens=1))
    print(f"cached: {answer.num_cached_tokens}")


if __name__ == "__main__":
    main(sys.argv[1])
