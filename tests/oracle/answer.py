"""Print the token ids that transformers' own processor makes; runs in the oracle's environment.

`python -m tests.oracle.answer FOLDER MODEL SIZES PIXELS` writes the model's files to FOLDER and
prints a JSON line for each prompt. The processor gets tensors without values: it computes their
shapes only, so that an image of 8192 x 8192 costs as little as a small one. PIXELS items are
processed again with pixels, and must give the same prompt.
"""

import json
import random
import sys
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from tests.oracle import sizes, tokenizer
from tests.oracle.models import MODELS
from tests.oracle.recipe import Recipe

# Pixels cost 10 ms per million.
_FEW_PIXELS = 1_000_000

Item = dict[str, Any]


class Oracle:
    """The processor of one model."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe = recipe
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.write(folder, recipe.special)
        _write(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
        self.processor = recipe.processor(folder)
        self.processor.save_pretrained(folder)
        if recipe.rewrite is not None:
            recipe.rewrite(folder)
        _write(folder / "config.json", recipe.config)
        self.separator = self._encode(tokenizer.SEPARATOR)[0]

    def answer(self, items: list[Item], options: dict[str, Any], *, pixels: bool) -> Item:
        """Return the token ids and spans of a prompt, or the error of a processor that refuses."""
        prompt: Item = {"items": items, "options": options}
        try:
            ids = self._process(items, options, pixels=pixels)
        except Exception as error:  # noqa: BLE001  (processors raise what they like)
            return prompt | {"error": f"{type(error).__name__}: {error}"[:120]}
        borders = [i for i, token in enumerate(ids) if token == self.separator]
        parts = [self._text(i).partition(self.recipe.target) for i in range(len(items))]
        around = [(len(self._encode(part[0])), len(self._encode(part[2]))) for part in parts]
        spans = [
            [start + 1 + before, end - after]
            for (start, end), (before, after) in zip(pairwise(borders), around, strict=True)
        ]
        if any(start == end for start, end in spans):
            return prompt | {"error": "an item without tokens"}
        runs = [[token, len(list(run))] for token, run in groupby(ids)]
        return prompt | {"ids": runs, "spans": spans}

    def _text(self, index: int) -> str:
        return self.recipe.text.replace("{i}", str(index + 1))

    def _encode(self, text: str) -> list[int]:
        return self.processor.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _process(self, items: list[Item], options: dict[str, Any], *, pixels: bool) -> list[int]:
        text = tokenizer.SEPARATOR.join(["", *map(self._text, range(len(items))), ""])
        media = {"image": _images, "video": _videos}[self.recipe.modality]
        arguments = media(items, pixels) | options | self.recipe.arguments
        return [int(i) for i in self.processor(text=[text], **arguments)["input_ids"][0]]


def _images(items: list[Item], pixels: bool) -> dict[str, Any]:
    import torch
    from PIL import Image

    if pixels:
        return {"images": [Image.new("RGB", (i["width"], i["height"])) for i in items]}
    shapes = [(3, i["height"], i["width"]) for i in items]
    tensors = [torch.empty(shape, dtype=torch.uint8, device="meta") for shape in shapes]
    # The fastest way of resizing: four times as fast as the default for tensors without values.
    return {"images": tensors, "input_data_format": "channels_first", "resample": 0}


def _videos(items: list[Item], pixels: bool) -> dict[str, Any]:
    import torch

    shapes = [(i["frames"], 3, i["height"], i["width"]) for i in items]
    device = "cpu" if pixels else "meta"
    return {
        **({} if pixels else {"resample": 0}),
        "videos": [torch.zeros(shape, dtype=torch.uint8, device=device) for shape in shapes],
        "video_metadata": [
            {
                "fps": i["fps"],
                "total_num_frames": i["frames"] * 8,
                "frames_indices": list(i["indices"]),
            }
            for i in items
        ],
        "input_data_format": "channels_first",
    }


def answers(oracle: Oracle, count: int, source: random.Random) -> Iterator[Item]:
    """Yield the answers for a number of sizes; a size that the processor refuses by itself."""
    draw = {"image": sizes.image, "video": sizes.video}
    while count > 0:
        number = min(count, source.randint(1, oracle.recipe.most))
        items = [draw[oracle.recipe.modality](source) for _ in range(number)]
        options = source.choice(oracle.recipe.options)
        count -= number
        answer = oracle.answer(items, options, pixels=False)
        if "error" in answer and number > 1:
            yield from (oracle.answer([item], options, pixels=False) for item in items)
        else:
            yield answer


def check_pixels(oracle: Oracle, count: int, source: random.Random) -> int:
    """Compare sizes that are processed with pixels and without; return their number."""
    compared = 0
    while compared < count:
        (answer,) = answers(oracle, 1, source)
        (item,) = answer["items"]
        pixels = item.get("width", 1) * item.get("height", 1) * item.get("frames", 1)
        if pixels > _FEW_PIXELS or "error" in answer:
            continue
        again = oracle.answer([item], answer["options"], pixels=True)
        if again != answer:
            raise SystemExit(f"not the same with pixels: {item}: {again} {answer}")
        compared += 1
    return compared


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1))


def main() -> None:
    folder, name, count, pixels = sys.argv[1:]
    import transformers

    transformers.logging.set_verbosity_error()
    source = random.Random(name)
    oracle = Oracle(MODELS[name], Path(folder))
    compared = check_pixels(oracle, int(pixels), source)
    print(json.dumps({"transformers": transformers.__version__, "pixels": compared}))
    for answer in answers(oracle, int(count), source):
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
