"""Cached pieces of texts have the ids of the whole text, for each kind of tokenizer."""

import random
from collections.abc import Iterator

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from mmhash.prompts import text_encoder
from mmhash.prompts.text_encoder import TextEncoder

NAMED = ["<|im_start|>", "<|im_end|>", "<image>", "</s>", "[INST]", "[/INST]"]
# Texts that could be tokens, parts of them or more than one.
PIECES = [
    *NAMED,
    *("<", ">", "[", "]", "<|im_", "start|>", "<im", "<<image>>", "[<image>]", "<image]", "<image>>"),
    *(" ", "\n\n", "a", "word", "two words", "é", "e\u0301", "한국", "😀", "\t", "<td>", "x" * 300),
]  # fmt: skip

PRE_TOKENIZERS = {
    "ByteLevel": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "ByteLevel with a prefix": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "Metaspace": pre_tokenizers.Metaspace(prepend_scheme="always"),
    "Metaspace of the first word": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "steps": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "isolated"), pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]
    ),
    "none": None,
}


def _train(pre_tokenizer: pre_tokenizers.PreTokenizer | None, *tokens: AddedToken) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("_"), normalizers.NFC()])
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["two words, and <td> 한국 é"] * 4, trainer)
    tokenizer.add_special_tokens([*NAMED, *tokens])
    return tokenizer


def _texts(count: int = 300) -> Iterator[str]:
    rng = random.Random(18)
    for _ in range(count):
        yield "".join(rng.choices(PIECES, k=rng.randint(0, 12)))


def _check(encoder: TextEncoder, tokenizer: Tokenizer) -> None:
    for text in _texts():
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        assert encoder.encode(text) == encoder.encode(text) == expected, text


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_pieces_have_the_ids_of_the_whole_text(name: str) -> None:
    tokenizer = _train(PRE_TOKENIZERS[name])
    encoder = TextEncoder(tokenizer)
    _check(encoder, tokenizer)
    assert bool(encoder._cached) == (name != "Metaspace of the first word")


@pytest.mark.parametrize(
    "token",
    [
        AddedToken("<|end|>", rstrip=True),
        AddedToken("<|end|>", lstrip=True),
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("<image><image>", normalized=False),
        AddedToken("a<im", normalized=False),
    ],
    ids=["rstrip", "lstrip", "single word", "of two tokens", "overlaps"],
)
def test_tokens_that_reach_into_others_stop_the_cuts(token: AddedToken) -> None:
    tokenizer = _train(PRE_TOKENIZERS["ByteLevel"], token)
    encoder = TextEncoder(tokenizer)
    _check(encoder, tokenizer)
    assert not encoder._cached


def test_other_tokens_are_found_in_the_pieces() -> None:
    tokens = [AddedToken("\n\n", normalized=False), AddedToken("<td>", normalized=True)]
    tokenizer = _train(PRE_TOKENIZERS["ByteLevel"], *tokens)
    encoder = TextEncoder(tokenizer)
    _check(encoder, tokenizer)
    assert encoder._cached


def test_tokens_around_a_text_are_added() -> None:
    tokenizer = _train(PRE_TOKENIZERS["ByteLevel"])
    begin = tokenizer.token_to_id("</s>")
    tokenizer.post_processor = TemplateProcessing(
        single="</s> $A", special_tokens=[("</s>", begin)]
    )
    encoder = TextEncoder(tokenizer)
    assert encoder.encode("a word", add_special_tokens=True)[0] == begin
    assert encoder.encode("a word")[0] != begin


def test_the_cache_is_bounded_and_has_entries_of_each_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(text_encoder, "MAX_CACHE", 5000)
    encoder = TextEncoder(_train(PRE_TOKENIZERS["ByteLevel"]))
    for number in range(200):
        encoder.encode(f"the text of number {number}")
        assert encoder._cached.size <= 5000
    assert (None, "the text of number 199") in encoder._cached
    assert (None, "the text of number 0") not in encoder._cached
    encoder.encode("the text of number 199", tenant=b"t" * 32)
    assert (b"t" * 32, "the text of number 199") in encoder._cached
    encoder.clear()
    assert not encoder._cached
    assert encoder._cached.size == 0
