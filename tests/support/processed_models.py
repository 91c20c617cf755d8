"""Models without a built-in family: their processor is from transformers, or is our own."""

import json
from pathlib import Path
from textwrap import dedent

from tests.oracle import tokenizer

IMAGE_TOKEN = "<|IMAGE_PLACEHOLDER|>"
AUDIO_TOKENS = ("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")

# The width of a hostile image chooses what the processor does.
KILLED, HANGING, NEGATIVE, HUNGRY, FRAMED, READ = 1, 2, 3, 4, 5, 6

_HOSTILE = '''
    import os
    import signal
    import time

    from transformers import ProcessorMixin


    class HostileProcessor(ProcessorMixin):
        """Exits, sleeps, answers nonsense or takes memory, depending on the image's width."""

        image_token = "<|IMAGE_PLACEHOLDER|>"
        image_token_id = 258
        image_token_ids = [258, 257]

        def __init__(self, tokenizer):
            super().__init__(tokenizer)

        def __call__(self, images=None, text=None, **kwargs):
            width = images[0].size[0] if hasattr(images[0], "size") and isinstance(images[0].size, tuple) else images[0].shape[2]
            if width == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if width == 2:
                time.sleep(60)
            if width == 3:
                return {"input_ids": [[-1] * 5]}
            if width == 4:
                bytearray(64 << 30)
            if width == 5:
                return {"input_ids": [[257, 258, 258, 257]]}
            if width == 6:
                return {"input_ids": [[258] * images[0].cpu().numpy().shape[1]]}
            return {"input_ids": [[258] * width]}
'''


def write_paddleocr(folder: Path) -> Path:
    """Write a PaddleOCR-VL model."""
    image = {"image_processor_type": "PaddleOCRVLImageProcessor", "patch_size": 14, "merge_size": 2}
    image |= {"temporal_patch_size": 1, "size": {"shortest_edge": 147456, "longest_edge": 2359296}}
    processor = {"processor_class": "PaddleOCRVLProcessor", "image_processor": image}
    return _write(folder, "paddleocr_vl", processor)


def write_qwen2_audio(folder: Path) -> Path:
    """Write a Qwen2-Audio model."""
    clip = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128}
    processor = {"processor_class": "Qwen2AudioProcessor", "feature_extractor": clip}
    return _write(folder, "qwen2_audio", processor, AUDIO_TOKENS)


def write_hostile(folder: Path) -> Path:
    """Write a model whose processor is a program in its directory."""
    written = _write(
        folder,
        "hostile",
        {
            "processor_class": "HostileProcessor",
            "auto_map": {"AutoProcessor": "processing_hostile.HostileProcessor"},
        },
    )
    (folder / "processing_hostile.py").write_text(dedent(_HOSTILE))
    return written


def _write(
    folder: Path,
    model_type: str,
    processor: dict[str, object],
    tokens: tuple[str, ...] = (IMAGE_TOKEN,),
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.write(folder, tokens)
    chat = (
        "{% for m in messages %}{% for c in m.content %}{{ c.text or '"
        + tokens[0]
        + "' }}{% endfor %}{% endfor %}"
    )
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "image_token": IMAGE_TOKEN}
    for name, content in (
        ("config.json", {"model_type": model_type}),
        ("processor_config.json", processor),
        ("tokenizer_config.json", named | {"chat_template": chat}),
    ):
        (folder / name).write_text(json.dumps(content))
    return folder
