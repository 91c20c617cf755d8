"""The size and device of an item, found on the event loop without reading the item."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mmhash.hashing import MAX_DEPTH
from mmhash.pil_image import is_image
from mmhash.split import LISTS
from mmhash.torch_tensor import is_tensor

if TYPE_CHECKING:
    from PIL import Image


class ItemCost(NamedTuple):
    """How much work hashing an item takes."""

    nbytes: int
    parts: int = 1
    # False if the item must be made readable first: an image must be decoded, a handle opened.
    in_place: bool = True
    device: int | None = None  # the GPU of the item or of a part


def cost_of(item: Any, *, depth: int = 0) -> ItemCost:
    """Return the cost of an item.

    An item that cannot be hashed costs 0: hashing reports the reason.
    """
    if isinstance(item, (bytes, bytearray)):
        return ItemCost(len(item))
    if isinstance(item, (np.ndarray, np.generic)):
        return ItemCost(item.nbytes)
    if is_tensor(item):
        return _cost_of_tensor(item)
    if is_image(item):
        return _cost_of_image(item)
    if isinstance(item, LISTS) and depth < MAX_DEPTH:
        return _cost_of_parts(item, depth)
    if hasattr(item, "__mmhash_view__") or hasattr(item, "__dlpack__"):
        nbytes = getattr(item, "nbytes", 0)
        return ItemCost(max(nbytes, 0) if isinstance(nbytes, int) else 0, in_place=False)
    try:
        return ItemCost(0 if item is None or isinstance(item, str) else memoryview(item).nbytes)
    except (BufferError, TypeError, ValueError):  # has no bytes, or was released
        return ItemCost(0)


def identity_of(item: Any) -> Hashable:
    """Return a value that two items in flight share only if they read the same bytes.

    The value is the address and layout of the buffer if these suffice, else the object itself.
    """
    if type(item) is np.ndarray:
        address = item.__array_interface__["data"][0]
        return (np.ndarray, address, item.shape, item.strides, item.dtype)
    if is_tensor(item):
        return _identity_of_tensor(item)
    return (object, id(item))


def _identity_of_tensor(tensor: Any) -> Hashable:
    import torch  # noqa: PLC0415  (a tensor has imported it)

    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_nested:
        return (object, id(tensor))
    if not (tensor.is_cpu or tensor.is_cuda):
        return (object, id(tensor))
    lazy = (tensor.is_conj(), tensor.is_neg())  # these tensors share a buffer and differ in value
    layout = (tensor.shape, tensor.stride(), tensor.dtype, lazy)
    return (torch.Tensor, tensor.device, tensor.data_ptr(), layout)


def _cost_of_tensor(tensor: Any) -> ItemCost:
    try:
        nbytes = tensor.nbytes
    except RuntimeError:  # nested or sparse: hashing refuses these
        return ItemCost(0)
    device = tensor.get_device() if tensor.is_cuda else None
    return ItemCost(nbytes, in_place=tensor.is_cpu or tensor.is_cuda, device=device)


def _cost_of_image(image: "Image.Image") -> ItemCost:
    pixel = {"I": 4, "F": 4}.get(image.mode) or (
        2 if image.mode.startswith("I;16") else len(image.getbands())
    )
    return ItemCost(image.width * image.height * pixel, in_place=False)


def _cost_of_parts(parts: Iterable[Any], depth: int) -> ItemCost:
    costs = [cost_of(part, depth=depth + 1) for part in parts]
    return ItemCost(
        sum(cost.nbytes for cost in costs),
        1 + sum(cost.parts for cost in costs),
        all(cost.in_place for cost in costs),
        next((cost.device for cost in costs if cost.device is not None), None),
    )
