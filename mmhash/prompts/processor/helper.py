"""The helper process loads a model's processor once, and counts tokens without pixels.

Only this program imports transformers. A forked child answers the questions. If a question ends the
child by a time-out, a lack of memory or a crash, the helper forks another child, which already has
the processor loaded.
"""

import os
import resource
import signal
import socket
import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np

from mmhash.prompts.processor.messages import MAX_MESSAGE, Answer, Facts, Question
from mmhash.requests import Modality

_MEMORY = 2 << 30
"""The address space for a question. Processors that need real pixels take up to half of it."""

_MODALITIES: tuple[Modality, ...] = get_args(Modality)
_PACKAGES = ("transformers", "torch", "torchvision", "tokenizers")
_SIZE_OF_PROBE = (321, 222)


def main(descriptor: int, directory: str, *, trusts_code: bool, seconds: float) -> None:
    """Load the processor, and keep a child that answers until the last client disconnects."""
    questions = socket.socket(fileno=descriptor)
    processor, facts = _load(directory, trusts_code=trusts_code)
    while True:
        worker = os.fork()
        if worker == 0:
            _limit_memory()
            _serve(questions, processor, facts, seconds)
            os._exit(0)
        _, status = os.waitpid(worker, 0)
        if status == 0:
            return


def _load(directory: str, *, trusts_code: bool) -> tuple["_Processor | None", Facts]:
    try:
        processor = _Processor(directory, trusts_code=trusts_code)
    except Exception as error:  # noqa: BLE001  (processors raise what they like)
        return None, Facts(error=_describe(error))
    return processor, Facts(targets=processor.targets, versions=_versions())


def _versions() -> str:
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve(
    questions: socket.socket, processor: "_Processor | None", facts: Facts, seconds: float
) -> None:
    """Answer each question on the socket that comes with it. SIGALRM ends a slow question."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(questions, MAX_MESSAGE, 1)
        if not message:
            return
        with socket.socket(fileno=descriptors[0]) as asker:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            question = msgspec.msgpack.decode(message, type=Question | None)
            if question is None or processor is None:
                answer: Facts | Answer = facts
            else:
                answer = processor.answer(question)
            with suppress(OSError):  # the caller has gone
                asker.sendall(msgspec.msgpack.encode(answer))
            signal.setitimer(signal.ITIMER_REAL, 0)


class _Processor:
    """A model's processor, and for each modality whether the processor needs real values."""

    def __init__(self, directory: str, *, trusts_code: bool) -> None:
        import torch  # noqa: PLC0415  (slow, so only this program imports it at its start)

        _declare_vision_operators(torch)
        from transformers import AutoProcessor  # noqa: PLC0415

        torch.set_num_threads(1)  # threads do not survive the fork
        self._torch = torch
        self._shapes_only = _make_shapes_only(torch)
        self._processor = AutoProcessor.from_pretrained(
            directory, trust_remote_code=trusts_code, local_files_only=True
        )
        self.targets = {
            modality: target
            for modality in _MODALITIES
            if isinstance(target := getattr(self._processor, f"{modality}_token", None), str)
        }
        self._needs_values: dict[Modality, bool] = {"audio": True}

    def answer(self, question: Question) -> Answer:
        """Return the tokens of an item."""
        try:
            return self._answer(question, values=self._reads_values(question))
        except Exception as error:  # noqa: BLE001  (processors raise what they like)
            return Answer(refusal=_describe(error))

    def _reads_values(self, question: Question) -> bool:
        """Return True if the processor fails without real values, or counts differently."""
        modality = question.modality
        if modality not in self._needs_values:
            width, height = _SIZE_OF_PROBE
            probe = Question(modality, question.target, width, height, frames=4, fps=2.0)
            try:
                same = self._answer(probe, values=False) == self._answer(probe, values=True)
            except Exception:  # noqa: BLE001  (processors raise what they like)
                same = False
            self._needs_values[modality] = not same
        return self._needs_values[modality]

    def _answer(self, question: Question, *, values: bool) -> Answer:
        output = self._process(question, values=values)
        ids = self._expansion(question, output)
        if not ids:
            raise ValueError("the item has no tokens")
        embedded = self._embedded_token(question.modality, ids)
        grids = output.get(f"{question.modality}_grid_thw")
        grid = None if grids is None else tuple(int(side) for side in grids[0])
        runs: list[tuple[int, int]] = []
        embeds: list[tuple[int, int]] = []
        start = 0
        for token, group in groupby(ids):
            count = sum(1 for _ in group)
            runs.append((token, count))
            if token == embedded:
                embeds.append((start, start + count))
            start += count
        return Answer(runs, embeds, grid)

    def _process(self, question: Question, *, values: bool) -> Any:
        with nullcontext() if values else self._shapes_only:
            return self._processor(
                text=[self._text(question)],
                text_kwargs={"return_text_replacement_offsets": True},
                return_tensors="pt",
                **self._media(question, values=values),
            )

    def _text(self, question: Question) -> str:
        """Return the text of the item after all earlier items: some processors number items."""
        lead, trail = self._around(question)
        return f"{lead}{question.target}{trail}" * (question.place + 1)

    def _around(self, question: Question) -> tuple[str, str]:
        """Return the tokens that some processors require around an item's token."""
        if question.target != self.targets[question.modality]:
            return "", ""
        names = (f"{question.modality}_start_token", f"{question.modality}_end_token")
        lead, trail = (getattr(self._processor, name, None) or "" for name in names)
        return lead, trail

    def _media(self, question: Question, *, values: bool) -> dict[str, Any]:
        number = question.place + 1
        if question.modality == "audio":
            named = "audio_processor" if hasattr(self._processor, "audio_processor") else None
            extractor = getattr(self._processor, named or "feature_extractor")
            silence = self._torch.zeros(question.samples).numpy()
            # Like vLLM: some processors would cut a clip off after 30 seconds.
            options = {"sampling_rate": extractor.sampling_rate, "truncation": False}
            return {"audio": [silence] * number, "audio_kwargs": options}
        if question.modality == "image" and values:
            from PIL import Image  # noqa: PLC0415  (what engines give a processor)

            return {"images": [Image.new("RGB", (question.width, question.height))] * number}
        layout = {"input_data_format": "channels_first"}
        sides = (3, question.height, question.width)
        if question.modality == "image":
            return {"images": [self._tensor(sides, values=False)] * number, **layout}
        times = question.times or tuple(range(question.frames))
        fps = 1.0 if question.times else question.fps
        metadata = {"fps": fps, "total_num_frames": len(times), "frames_indices": list(times)}
        return {
            "videos": [self._tensor((question.frames, *sides), values=values)] * number,
            "video_metadata": [metadata] * number,
            "do_sample_frames": False,
            **layout,
        }

    def _tensor(self, shape: tuple[int, ...], *, values: bool) -> Any:
        """Return a tensor of this shape; with `values`, every element is the same byte."""
        torch = self._torch
        if values:
            return torch.zeros(1, dtype=torch.uint8).expand(shape)
        return torch.empty(shape, dtype=torch.uint8, device="meta")

    def _expansion(self, question: Question, output: Any) -> list[int]:
        """Return the ids that the processor puts in place of the target's token."""
        replaced = output.get("text_replacement_offsets")
        if replaced:
            replacement = replaced[0][-1]["replacement"]
            token = self.targets[question.modality]
            return self._encode(question.target.replace(token, replacement, 1))
        # An older processor returns only the prompt, with the same tokens around the target.
        ids = [int(token) for token in output["input_ids"][0]]
        whole = self._encode(self._text(question), add_special_tokens=True)
        target = self._encode(question.target)
        starts = [i for i in range(len(whole)) if whole[i : i + len(target)] == target]
        before, end = starts[0], starts[0] + len(target)
        after = len(whole) - end
        same = ids[:before] == whole[:before] and ids[len(ids) - after :] == whole[end:]
        if len(starts) > 1 or not same:
            raise ValueError("the processor changes the text around an item")
        return ids[before : len(ids) - after]

    def _encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        encode = self._processor.tokenizer
        return list(encode(text, add_special_tokens=add_special_tokens)["input_ids"])

    def _embedded_token(self, modality: Modality, ids: list[int]) -> int:
        """Return the most frequent id, which takes embeddings.

        The modality's own token wins a tie.
        """
        own = getattr(self._processor, f"{modality}_token_id", None)
        counts = Counter(ids)
        return max(counts, key=lambda token: (counts[token], token == own))


def _make_shapes_only(torch: Any) -> AbstractContextManager[Any]:
    """Return a context in which processors compute with shapes alone.

    Some processors read back the masks and lists that they make, which must have values. Other
    processors convert an image to an array only to read its shape.
    """

    class ShapesOnly(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if function in {torch.ones, torch.tensor} and str(kwargs.get("device")) == "meta":
                kwargs = kwargs | {"device": "cpu"}
            elif function is torch.Tensor.cpu and args[0].is_meta:
                return args[0]
            elif function is torch.Tensor.numpy and args[0].is_meta:
                return np.broadcast_to(np.float32(0), args[0].shape)
            return function(*args, **kwargs)

    return ShapesOnly()


def _declare_vision_operators(torch: Any) -> None:
    """Declare operators that torchvision's CUDA build expects and lacks on a CPU."""
    try:
        import torchvision  # noqa: F401, PLC0415
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)


_KEPT: list[Any] = []
"""Operators disappear with their library, so keep the library."""


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], trusts_code=sys.argv[3] == "1", seconds=float(sys.argv[4]))
