"""Structured items: text around runs of a repeated token."""

from itertools import chain, groupby

from mmhash.prompts.families.family import MAX_TOKENS, Expansion
from mmhash.prompts.files import ModelFiles, UnknownModelError


def lay_out(files: ModelFiles, text: str, token: int, run: int) -> Expansion:
    """Encode a text and repeat each `token` in it `run` times. These tokens take embeddings.

    The text is encoded before the runs are written out, which leaves the tokenizer less to read.
    """
    ids = files.encode(text)
    if ids.count(token) * run + len(ids) > MAX_TOKENS:
        raise UnknownModelError(f"an item of this model has more than {MAX_TOKENS} tokens")
    return mark_embeds(
        [*chain.from_iterable([i] * run if i == token else (i,) for i in ids)], token
    )


def mark_embeds(token_ids: list[int], token: int) -> Expansion:
    """Return an expansion that takes embeddings at each `token`."""
    embeds, start = [], 0
    for value, group in groupby(token_ids):
        end = start + sum(1 for _ in group)
        if value == token:
            embeds.append((start, end))
        start = end
    return Expansion(token_ids, embeds)
