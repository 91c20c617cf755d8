"""A tokenizer of single bytes with a family's special tokens, in both environments the same."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SEPARATOR = "<|separator|>"
"""Stands between the items of a prompt: no family's expansion contains it."""


def write(folder: Path, special: tuple[str, ...]) -> None:
    """Write tokenizer.json."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokens = (SEPARATOR, "<|endoftext|>", *special)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens])
    tokenizer.save(str(folder / "tokenizer.json"))
