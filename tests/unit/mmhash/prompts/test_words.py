"""Ids looked up word by word equal the tokenizer's, and other texts and tokenizers are left to it."""

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from mmhash.prompts import words
from mmhash.prompts.text_encoder import TextEncoder
from mmhash.prompts.words import WordEncoder, find_words, has_known_expressions

# As tokenizer.json of these models has them.
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NAMED = ["<|im_start|>", "<|im_end|>", "<tool_call>"]


def split(expression: str, behavior: str = "isolated") -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(expression), behavior),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip


def train(pre_tokenizer: pre_tokenizers.PreTokenizer, *, nfc: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([re.__doc__ or "", "isn't  it\n\n  I'LL 1234 é"] * 4, trainer)
    tokenizer.add_special_tokens(NAMED)
    return tokenizer


TOKENIZERS = {
    "GPT-2": train(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "Qwen2": train(split(QWEN2), nfc=True),
    "Llama 3": train(split(LLAMA3)),
}

ASCII = st.text(st.characters(codec="ascii"))
PIECES = st.sampled_from(
    [*NAMED, *" \t\n\r\x0b\x0c\x1c\x1f\x7f'<>|", "  ", "\r\n", "'s", "'S", "'LL", "12", "1234", "é"]
)


ENCODERS = {name: TextEncoder(tokenizer) for name, tokenizer in TOKENIZERS.items()}


@pytest.mark.parametrize("name", TOKENIZERS)
@given(parts=st.lists(ASCII | PIECES | st.text()))
def test_ids_are_those_of_the_tokenizer(name: str, parts: list[str]) -> None:
    text = "".join(parts)
    expected = TOKENIZERS[name].encode(text, add_special_tokens=False).ids
    assert TextEncoder(TOKENIZERS[name]).encode(text) == expected
    assert ENCODERS[name].encode(text) == expected  # with the words of earlier texts


@pytest.mark.parametrize("name", TOKENIZERS)
def test_new_texts_have_known_words(name: str) -> None:
    draw = random.Random(5)
    source = re.findall(r"\s*\S+", re.__doc__ or "")
    encoder = TextEncoder(TOKENIZERS[name])
    of_words = encoder._words
    assert of_words is not None
    sizes = []
    for _ in range(30):
        text = "".join(draw.choices(source, k=200))
        assert encoder.encode(text) == TOKENIZERS[name].encode(text, add_special_tokens=False).ids
        sizes.append(len(of_words._known[None]))
    assert sizes[0] > 50
    assert sizes[-1] - sizes[20] < sizes[0] / 2


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        None,
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        pre_tokenizers.Whitespace(),
        split(r"\p{L}+"),
        split(QWEN2, "removed"),
    ],
)
def test_other_pre_tokenizers_are_not_known(pre_tokenizer: Any) -> None:
    tokenizer = Tokenizer(models.BPE())
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    assert find_words(tokenizer) is None


def test_other_normalizers_and_tokens_in_words_are_not_known() -> None:
    tokenizer = train(split(QWEN2))
    assert TextEncoder(tokenizer)._words is not None
    tokenizer.add_tokens(["word"])
    assert TextEncoder(tokenizer)._words is None
    tokenizer = train(split(QWEN2))
    tokenizer.normalizer = normalizers.Lowercase()
    assert find_words(tokenizer) is None


@pytest.mark.parametrize("text", ["é", "a\x1cb", "\x00", "x" * 65])
def test_texts_of_other_words_are_encoded_as_a_whole(text: str) -> None:
    pattern = find_words(TOKENIZERS["Qwen2"])
    assert pattern is not None
    assert WordEncoder(pattern, TOKENIZERS["Qwen2"]).encode(text, None) is None


def test_the_words_are_bounded_and_each_tenants_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MAX_CACHE", 5000)
    tokenizer = TOKENIZERS["GPT-2"]
    encoder = TextEncoder(tokenizer)
    of_words = encoder._words
    assert of_words is not None
    for number in range(200):
        text = f"the number {number}"
        assert encoder.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids
        assert of_words._size <= 5000
        assert len(of_words._known.get(None, ())) <= 25
    encoder.encode("a secret", tenant=b"t" * 32)
    assert " secret" in of_words._known[b"t" * 32]
    assert " secret" not in of_words._known.get(None, ())
    encoder.clear()
    assert not of_words._known


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_expressions_of_these_are_known(name: str) -> None:
    assert has_known_expressions(TOKENIZERS[name])


def test_other_expressions_are_not_known_wherever_they_are() -> None:
    for known in (pre_tokenizers.Metaspace(), pre_tokenizers.Split(" ", "isolated"), None):
        tokenizer = Tokenizer(models.BPE())
        if known is not None:
            tokenizer.pre_tokenizer = known
        assert has_known_expressions(tokenizer)
    unknown = pre_tokenizers.Split(Regex("a+"), "isolated")
    nested = pre_tokenizers.Sequence([pre_tokenizers.Digits(), unknown])
    for step in (unknown, nested, pre_tokenizers.Sequence([nested])):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = step
        assert not has_known_expressions(tokenizer)
    for pattern, is_known in ((Regex("a+"), False), ("a", True)):
        tokenizer = Tokenizer(models.BPE())
        replace = normalizers.Replace(pattern, "b")
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), replace])
        assert has_known_expressions(tokenizer) == is_known
