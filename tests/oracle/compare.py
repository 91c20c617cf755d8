"""Comparison of a family's expansions with the oracle's answers."""

from itertools import chain, repeat
from typing import Any

from mmhash.errors import InputError
from mmhash.prompts.families.family import Family, MediaSize
from mmhash.prompts.files import ModelFiles
from tests.oracle.tokenizer import SEPARATOR


def media_size(item: dict[str, Any], in_prompt: int) -> MediaSize:
    """Return the size of one of the oracle's items."""
    if "frames" not in item:
        return MediaSize(**item, in_prompt=in_prompt)
    times = tuple(index / item["fps"] for index in item["indices"])
    width, height, frames = item["width"], item["height"], item["frames"]
    return MediaSize(width, height, frames, item["fps"], in_prompt=in_prompt, times=times)


def expand(
    family: Family, files: ModelFiles, modality: Any, answer: dict[str, Any]
) -> tuple[list[int], list[list[int]]]:
    """Return the token ids and spans of the prompt that an answer is for."""
    placeholder = family.placeholders()[modality]
    separator = files.token_id(SEPARATOR)
    ids, spans = [separator], []
    for number, item in enumerate(answer["items"], 1):
        size = media_size(item, len(answer["items"]))
        expansion = family.expand(modality, size, answer["options"])
        text = placeholder.text.replace("{i}", str(number))
        before, _, after = text.partition(placeholder.target.replace("{i}", str(number)))
        ids += files.encode(before)
        spans.append([len(ids), len(ids) + len(expansion.token_ids)])
        ids += [*expansion.token_ids, *files.encode(after), separator]
    return ids, spans


def difference(
    family: Family, files: ModelFiles, modality: Any, answer: dict[str, Any]
) -> str | None:
    """Return the first difference from an answer; None if the plan is equal."""
    try:
        ids, spans = expand(family, files, modality, answer)
    except InputError as error:
        return None if "error" in answer else f"refused: {error}"
    if "error" in answer:
        return f"planned, although the processor fails: {answer['error']}"
    if ids != list(chain.from_iterable(repeat(token, count) for token, count in answer["ids"])):
        return "other token ids"
    return None if spans == answer["spans"] else f"other spans: {spans}, not {answer['spans']}"
