"""Writes random weights for a tiny model. It runs in an engine's environment.

An engine's own dummy weights are so small that the image would not change the output.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForImageTextToText


def main(folder: Path) -> None:
    """Write model.safetensors into the folder of a model without weights."""
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder)).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.15)
    written = folder / "weights"
    model.save_pretrained(written)
    for path in written.glob("*.safetensors"):
        path.replace(folder / path.name)
    for path in written.iterdir():
        path.unlink()
    written.rmdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
