"""What can hash here, and whether it hashes right."""

from typing import Any

import mmhash
from mmhash.cuda import why_unavailable
from mmhash_service.settings import Settings

# Three chunks and a bit, of the bytes that BLAKE3's own vectors are made of.
_CONTENT = bytes(i % 251 for i in range(3 * 1024 + 1))
_ANSWERS = {
    "blake3": "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3",
    "xxh3": "596dd5c3d14286bcc2b44e0659c8d2e1",
}


def devices(settings: Settings) -> list[str]:
    """Where content may lie; a GPU is not touched unless items may lie on it."""
    return ["cpu", *(f"cuda:{index}" for index in _gpus(settings))]


def all_answer_right(settings: Settings) -> bool:
    """Whether each backend gives the digest that is known."""
    contents: list[Any] = [_CONTENT, *(_on_gpu(index) for index in _gpus(settings))]
    return all(
        mmhash.digest(content, algorithm=algorithm).hex() == answer
        for content in contents
        for algorithm, answer in _ANSWERS.items()
    )


def _gpus(settings: Settings) -> list[int]:
    if not settings.cuda_ipc:
        return []
    import torch  # noqa: PLC0415  (need not be installed where no GPU is used)

    return [index for index in range(torch.cuda.device_count()) if why_unavailable(index) is None]


def _on_gpu(index: int) -> Any:
    import torch  # noqa: PLC0415  (as above)

    return torch.tensor(list(_CONTENT), dtype=torch.uint8, device=f"cuda:{index}")
