"""Declares operators of torchvision without its compiled part, which needs CUDA's libraries."""

from pathlib import Path

_DECLARATIONS = (
    "import torch\n"
    "_declared = torch.library.Library('torchvision', 'DEF')\n"
    "for _name in ('nms', 'qnms'):\n"
    "    _declared.define(\n"
    "        _name + '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor'\n"
    "    )\n"
)


def declare_vision_operators(packages: Path) -> None:
    """Declare the operators that torchvision needs at import. It is installed in `packages`."""
    path = packages / "torchvision" / "_meta_registrations.py"
    path.write_text(_DECLARATIONS + path.read_text())
