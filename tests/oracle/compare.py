"""Comparison of planned token ids with the oracle's answers."""

from itertools import chain, repeat
from typing import Any

from mmhash.errors import InputError
from mmhash.prompts.expansion import expand
from mmhash.prompts.families.family import Family
from mmhash.prompts.items import MediaSize
from mmhash.requests import Modality
from tests.oracle.tokenizer import SEPARATOR


def media_size(item: dict[str, Any]) -> MediaSize:
    """Return the size of one of the oracle's items."""
    if "frames" not in item:
        return MediaSize(**item)
    times = tuple(index / item["fps"] for index in item["indices"])
    return MediaSize(item["width"], item["height"], item["frames"], item["fps"], times=times)


def plan(
    family: Family, modality: Modality, answer: dict[str, Any]
) -> tuple[list[int], list[list[int]]]:
    """Return the token ids and spans of the prompt that an answer is for."""
    placeholder = family.placeholders[modality]
    text = placeholder.text or placeholder.target
    texts = [text.replace("{i}", str(i + 1)) for i in range(len(answer["items"]))]
    prompt = family.files.encoder.encode(SEPARATOR.join(["", *texts, ""]))
    items = [(modality, media_size(item)) for item in answer["items"]]
    token_ids, placed = expand(family, prompt, items, answer["options"])
    return token_ids, [[item.start, item.end] for item in placed]


def difference(family: Family, modality: Modality, answer: dict[str, Any]) -> str | None:
    """Return the difference from an answer; None if the plan is equal."""
    try:
        ids, spans = plan(family, modality, answer)
    except InputError as error:
        return None if "error" in answer else f"refused: {error}"
    if "error" in answer:
        return f"planned, although the processor fails: {answer['error']}"
    if ids != list(chain.from_iterable(repeat(token, count) for token, count in answer["ids"])):
        return "other token ids"
    return None if spans == answer["spans"] else f"other spans: {spans}, not {answer['spans']}"
