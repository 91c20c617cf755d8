"""How much work an item is and where it lies, told without reading it: the loop has no time."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mmhash.hashing import MAX_DEPTH
from mmhash.image import DAMAGE
from mmhash.pil_image import count_frames as frames_of
from mmhash.view import is_image, is_tensor

if TYPE_CHECKING:
    from PIL import Image


class ItemCost(NamedTuple):
    """What an item weighs."""

    nbytes: int
    parts: int = 1
    # Whether it is read where it lies: an image is decoded first, a handle opened.
    in_place: bool = True
    device: int | None = None  # the GPU that it, or a part of it, lies on
    # An animation's frames are counted only by reading through it: until then it weighs as one.
    is_estimate: bool = False


def cost_of(item: Any, *, count_frames: bool = False, depth: int = 0) -> ItemCost:
    """Weigh an item. What cannot be hashed weighs nothing: hashing it says why."""
    if isinstance(item, (bytes, bytearray)):
        return ItemCost(len(item))
    if isinstance(item, (np.ndarray, np.generic)):
        return ItemCost(item.nbytes)
    if is_tensor(item):
        return _cost_of_tensor(item)
    if is_image(item):
        return _cost_of_image(item, count_frames)
    if isinstance(item, (list, tuple)) and depth < MAX_DEPTH:
        return _cost_of_parts(item, count_frames, depth)
    if hasattr(item, "__mmhash_view__") or hasattr(item, "__dlpack__"):
        nbytes = getattr(item, "nbytes", 0)
        return ItemCost(max(nbytes, 0) if isinstance(nbytes, int) else 0, in_place=False)
    try:
        return ItemCost(0 if item is None or isinstance(item, str) else memoryview(item).nbytes)
    except (BufferError, TypeError, ValueError):  # has no bytes, or has none any more
        return ItemCost(0)


def identity_of(item: Any) -> Hashable:
    """Equal for two items of which both are in flight only if both have the same bytes to read.

    It is the buffer's place where that says all, else the object itself.
    """
    if type(item) is np.ndarray:
        place = item.__array_interface__["data"][0]
        return (np.ndarray, place, item.shape, item.strides, item.dtype)
    if is_tensor(item):
        return _identity_of_tensor(item)
    return (object, id(item))


def _identity_of_tensor(tensor: Any) -> Hashable:
    import torch  # noqa: PLC0415  (a tensor is met)

    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_nested:
        return (object, id(tensor))
    if not (tensor.is_cpu or tensor.is_cuda):
        return (object, id(tensor))
    lazy = (tensor.is_conj(), tensor.is_neg())  # these share a buffer and do not mean the same
    layout = (tensor.shape, tensor.stride(), tensor.dtype, lazy)
    return (torch.Tensor, tensor.device, tensor.data_ptr(), layout)


def _cost_of_tensor(tensor: Any) -> ItemCost:
    try:
        nbytes = tensor.nbytes
    except RuntimeError:  # nested, sparse: refused when it is hashed
        return ItemCost(0)
    device = tensor.get_device() if tensor.is_cuda else None
    return ItemCost(nbytes, in_place=tensor.is_cpu or tensor.is_cuda, device=device)


def _cost_of_image(image: "Image.Image", count_frames: bool) -> ItemCost:
    pixel = {"I": 4, "F": 4}.get(image.mode) or (
        2 if image.mode.startswith("I;16") else len(image.getbands())
    )
    nbytes = image.width * image.height * pixel
    # GIF and TIFF count by reading through the file, each time or at first; others know.
    if not count_frames and hasattr(type(image), "n_frames"):
        return ItemCost(nbytes, in_place=False, is_estimate=True)
    try:
        return ItemCost(nbytes * frames_of(image), in_place=False)
    except DAMAGE:  # hashing it says so
        return ItemCost(nbytes, in_place=False)


def _cost_of_parts(parts: list[Any] | tuple[Any, ...], count_frames: bool, depth: int) -> ItemCost:
    loads = [cost_of(part, count_frames=count_frames, depth=depth + 1) for part in parts]
    return ItemCost(
        sum(load.nbytes for load in loads),
        1 + sum(load.parts for load in loads),
        all(load.in_place for load in loads),
        next((load.device for load in loads if load.device is not None), None),
        any(load.is_estimate for load in loads),
    )
