"""A running vLLM reuses a video by its key under a recipe, however its frames were asked for."""

import secrets
from io import BytesIO
from typing import Any

import av

import mmhash
from mmhash.engines import vllm
from tests.live import prompts
from tests.live.engines import Engine, only
from tests.live.prompts import Media
from tests.support.clips import make_video


def _ask(engine: Engine, film: bytes, text: str, **recipe: Any) -> tuple[int, int]:
    """Send a recipe's frames under its key. Return the prompt's tokens and the cached ones."""
    clip = mmhash.video(film, size=(224, 224), **recipe)
    with av.open(BytesIO(film)) as container:
        pictures = [picture.to_image() for picture in container.decode(video=0)]
    frames = tuple(pictures[index].resize((224, 224)) for index in clip.recipe.indices)
    part = prompts.part(Media("video", clip.key, frames), vllm.uuid(clip.key))
    message = {"role": "user", "content": [part, {"type": "text", "text": text}]}
    answer = engine.chat({"messages": [message], "return_token_ids": True})
    return len(answer["prompt_token_ids"]), prompts.cached(answer)


@only("vllm")
def test_a_repeated_video_hits_and_another_sampling_misses(engine: Engine) -> None:
    film = make_video("h264.mp4", 24, seed=secrets.randbits(32))
    text = secrets.token_hex(40)
    tokens, first = _ask(engine, film, text, fps=2)
    _, repeated = _ask(engine, film, text, fps=2)
    _, respelt = _ask(engine, film, text, indices=[0, 6, 12, 18])
    _, other = _ask(engine, film, text, indices=[1, 7, 13, 19])
    print(f"tokens {tokens}, cached: {first} {repeated} {respelt}, other sampling {other}")
    # The text before the video is cached in any case.
    whole = tokens // engine.block_size * engine.block_size - engine.block_size
    assert repeated == respelt >= whole
    assert max(first, other) < tokens // 4
