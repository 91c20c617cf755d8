"""Build the ids of an ASCII text from the cached ids of its words: new texts have few new words.

A pre-tokenizer cuts a text into words with a regular expression, and a word has the same ids
everywhere. For the expressions below, Python finds the same words in an ASCII text as the tokenizer
does, so only new words need the tokenizer.
"""

import json
import re
from collections.abc import Iterator
from itertools import chain
from threading import Lock
from typing import Any

from tokenizers import Tokenizer

MAX_CACHE = 8 << 20
"""The estimated size of a model's cache, in bytes."""

_MAX_WORD = 64  # characters; a text with a longer word is encoded whole

_ENTRY = 200  # bytes of an entry apart from its text and ids
_ID = 36  # bytes of an int and its slot in a list

# Python and the tokenizer disagree about which control characters are spaces.
_CONTROL = re.compile(r"[^\t\n\r -~]")

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")


def _for_ascii(expression: str) -> re.Pattern[str]:
    """Translate an expression for ASCII texts: Python's `re` lacks Unicode classes."""
    inside = expression.replace(r"\p{L}\p{N}", "A-Za-z0-9")
    outside = inside.replace(r"\p{L}", "[A-Za-z]").replace(r"\p{N}", "[0-9]")
    return re.compile(outside, re.ASCII)


_EXPRESSIONS = {text: _for_ascii(text) for text in (_GPT2, _QWEN2, _LLAMA3)}

# ByteLevel's characters for bytes of ASCII texts. All other bytes stand for themselves.
_BYTE_LEVEL = str.maketrans({"\t": "ĉ", "\n": "Ċ", "\r": "č", " ": "Ġ"})

Tenant = bytes | None


class WordEncoder:
    """Caches the known words of each tenant. Threads may share it."""

    def __init__(self, words: re.Pattern[str], tokenizer: Tokenizer) -> None:
        self._words = words
        self._model = tokenizer.model
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        """Forget all words."""
        self._known: dict[Tenant, dict[str, list[int]]] = {}
        self._size = 0

    def encode(self, text: str, tenant: Tenant) -> list[int] | None:
        """Return the ids of a text, or None if the text must be encoded whole."""
        if _CONTROL.search(text):
            return None
        words = self._words.findall(text)
        known = self._known.setdefault(tenant, {})
        for word in set(words).difference(known):
            if len(word) > _MAX_WORD:
                return None
            # Calling only the tokenizer's model is faster than running the whole tokenizer.
            tokens = self._model.tokenize(word.translate(_BYTE_LEVEL))
            known[word] = ids = [token.id for token in tokens]
            self._grow(bytes_of(word, ids))
        return list(chain.from_iterable(map(known.__getitem__, words)))

    def _grow(self, count: int) -> None:
        with self._lock:
            self._size += count
            if self._size > MAX_CACHE:
                self.clear()  # texts being encoded keep their own references


def find_words(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """Return the expression that cuts a tokenizer's ASCII texts, or None if it is not known."""
    if tokenizer.normalizer is not None and _state(tokenizer.normalizer) != {"type": "NFC"}:
        return None
    if tokenizer.pre_tokenizer is None:
        return None
    match _state(tokenizer.pre_tokenizer):
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return _EXPRESSIONS[_GPT2]
        case {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": str(text)},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return _EXPRESSIONS.get(text)
    return None


def has_known_expressions(tokenizer: Tokenizer) -> bool:
    """Return True if a tokenizer uses only the regular expressions above.

    Any other expression may take minutes for a short text: a single match has a step limit, but the
    number of matches has none.
    """
    steps = (tokenizer.normalizer, tokenizer.pre_tokenizer)
    states = [_state(step) for step in steps if step is not None]
    return all(text in _EXPRESSIONS for text in _expressions(states))


def _expressions(state: Any) -> Iterator[str]:
    """Yield the regular expressions in the state of a step, including nested sequences."""
    if isinstance(state, dict):
        if "Regex" in state:
            yield state["Regex"]
        state = list(state.values())
    if isinstance(state, list):
        for part in state:
            yield from _expressions(part)


def _state(step: Any) -> Any:
    return json.loads(step.__getstate__())


def bytes_of(text: str, ids: list[int]) -> int:
    """Estimate the bytes that a text and its ids take in a cache."""
    return _ENTRY + 4 * len(text) + _ID * len(ids)
