"""Print what vLLM's own input processing makes of random prompts; runs in vLLM's environment.

`python -m tests.oracle.vllm_inputs FOLDER SIZES TYPE…` writes a tiny model of each type to FOLDER,
and prints a JSON line for each type and each of its prompts. No model is loaded: vLLM's multimodal
processor gets images, videos and clips of random sizes, and returns the ids and the placeholders.
"""

import json
import os
import random
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.oracle import sizes

# Pixels cost time, and sides of up to 8192 are kept: the other side is less then.
_PIXELS = {"image": 600_000, "video": 100_000}
_WORDS = ("ab", "c\n", "\n\nx", "1 2", " the ")

Item = dict[str, Any]


def draw(modality: str, source: random.Random) -> Item:
    """Return the size of an item."""
    if modality == "audio":
        return sizes.audio(source)
    item = sizes.image(source)
    while item["width"] * item["height"] > _PIXELS[modality]:
        item = {side: max(1, pixels // 2) for side, pixels in item.items()}
    if modality == "image":
        return item
    item["height"] = max(4, item["height"])  # fewer rows are taken for channels
    frames = source.choice((2, 4, 5, 8))
    return {
        **item,
        "frames": frames,
        "fps": source.choice((1.0, 2.0, 4.0)),
        "indices": list(range(frames)),
    }


class Engine:
    """vLLM's processor of one model."""

    def __init__(self, folder: Path) -> None:
        from vllm.config import ModelConfig
        from vllm.multimodal import MULTIMODAL_REGISTRY

        config = ModelConfig(
            model=str(folder),
            tokenizer=str(folder),
            dtype="float32",
            limit_mm_per_prompt={"image": 8, "video": 4, "audio": 8},
        )
        self.processor = MULTIMODAL_REGISTRY.create_processor(config)
        self.limits = self.processor.info.get_supported_mm_limits()
        self.texts = {
            modality: self.processor.dummy_inputs.get_dummy_text({modality: 1})
            for modality in self.limits
        }

    def prompts(self, count: int, source: random.Random) -> Iterator[Item]:
        """Yield prompts with `count` images and a quarter of it of each other kind, and mixed ones."""
        main = "image" if "image" in self.limits else next(iter(self.limits), "")
        for modality in (*self.limits, *(["mixed"] if len(self.limits) > 1 else [])):
            left = count if modality == main else -(-count // 4)
            while left > 0:
                most = 4 if modality == "mixed" else min(4, self.limits[modality] or 4)
                number = 1 if source.random() < 0.25 else source.randint(1, most)
                chosen = [
                    source.choice(list(self.limits)) if modality == "mixed" else modality
                    for _ in range(min(number, left))
                ]
                items = [(one, draw(one, source)) for one in chosen]
                left -= len(items)
                yield self.answer(modality, items, source)

    def answer(self, modality: str, items: list[tuple[str, Item]], source: random.Random) -> Item:
        """Return a prompt with vLLM's ids and the span of each item, or its error."""
        from vllm.multimodal.processing import ProcessorInputs, TimingContext

        text = source.choice(_WORDS) + "".join(
            self.texts[one] + source.choice(_WORDS) for one, _ in items
        )
        prompt = self.processor.info.get_tokenizer().encode(
            text, add_special_tokens=source.random() < 0.5
        )
        asked: Item = {"modality": modality, "items": items, "prompt": prompt}
        try:
            made = self.processor.apply(
                ProcessorInputs(list(prompt), self._parse(items)), TimingContext(enabled=False)
            )
        except Exception as error:  # noqa: BLE001  (any refusal is an answer)
            return asked | {"error": f"{type(error).__name__}: {error}"[:200]}
        placeholders = {one: iter(ranges) for one, ranges in made["mm_placeholders"].items()}
        spans = [next(placeholders[one]) for one, _ in items]
        runs = [[token, len(list(run))] for token, run in groupby(made["prompt_token_ids"])]
        return asked | {
            "ids": runs,
            "spans": [[span.offset, span.offset + span.length] for span in spans],
        }

    def _parse(self, items: list[tuple[str, Item]]) -> Any:
        parse = self.processor.info.parse_mm_data
        try:
            return parse(_media(items, with_metadata=True))
        except Exception:  # noqa: BLE001  (some models take videos without metadata only)
            return parse(_media(items, with_metadata=False))


def _media(items: list[tuple[str, Item]], *, with_metadata: bool) -> dict[str, list[Any]]:
    import numpy as np
    from PIL import Image

    made: dict[str, list[Any]] = {}
    for modality, item in items:
        if modality == "image":
            one: Any = Image.new("RGB", (item["width"], item["height"]))
        elif modality == "audio":
            one = (np.zeros(item["samples"], np.float32), 16_000)
        else:
            one = np.zeros((item["frames"], item["height"], item["width"], 3), np.uint8)
            metadata = {
                "fps": item["fps"],
                "duration": item["frames"] / item["fps"],
                "total_num_frames": item["frames"],
            }
            metadata |= {
                "frames_indices": item["indices"],
                "video_backend": "opencv",
                "do_sample_frames": False,
            }
            one = (one, metadata) if with_metadata else one
        made.setdefault(modality, []).append(one)
    return made


def main() -> None:
    folder, count, *chosen = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")  # some processors print
    os.dup2(2, 1)
    from vllm.model_executor.models import registry

    from tests.oracle import tiny

    registry._run_in_subprocess = lambda function: function()  # ten seconds for each type
    for model_type in chosen or tiny.types():
        try:
            tiny.write(model_type, Path(folder) / model_type)
            engine = Engine(Path(folder) / model_type)
        except Exception as error:  # noqa: BLE001  (any reason is printed)
            print(
                json.dumps({"type": model_type, "why": f"{type(error).__name__}: {error}"[:300]}),
                file=answers,
                flush=True,
            )
            continue
        print(json.dumps({"type": model_type}), file=answers, flush=True)
        for prompt in engine.prompts(int(count), random.Random(model_type)):
            print(json.dumps(prompt), file=answers, flush=True)


if __name__ == "__main__":
    main()
