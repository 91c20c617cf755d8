"""A stand-in for a model's chat template and tokenizer, which gateway and engines share."""

from typing import Any, NamedTuple
from zlib import crc32

IMAGE_TOKENS, PLACEHOLDER = 256, 151655


class Image(NamedTuple):
    """The range of an image's placeholders (`end` is excluded), and its part of the chat."""

    start: int
    end: int
    part: dict[str, Any]


def tokenize(chat: dict[str, Any]) -> tuple[list[int], list[Image]]:
    """Return the ids of a chat's prompt, one for each word, and its images."""
    ids: list[int] = []
    images = []
    for message in chat["messages"]:
        ids.append(crc32(message["role"].encode()))
        for part in message["content"]:
            if part["type"] == "image_url":
                images.append(Image(len(ids), len(ids) + IMAGE_TOKENS, part))
                ids += [PLACEHOLDER] * IMAGE_TOKENS
            else:
                ids += [crc32(word.encode()) for word in part["text"].split()]
    return ids, images
