"""Structured items: text around runs of a repeated token."""

from mmhash.prompts.families.family import Expansion, check_count
from mmhash.prompts.files import ModelFiles


def lay_out(files: ModelFiles, text: str, token: int, run: int) -> Expansion:
    """Encode a text and repeat each `token` in it `run` times. These tokens take embeddings.

    The text is encoded before the runs are written out, which leaves the tokenizer less to read.
    """
    encoded = files.encode(text)
    check_count(encoded.count(token) * run + len(encoded))
    ids: list[int] = []
    embeds = []
    for one in encoded:
        if one == token:
            embeds.append((len(ids), len(ids) + run))
            ids += [token] * run
        else:
            ids.append(one)
    return Expansion(ids, embeds)
