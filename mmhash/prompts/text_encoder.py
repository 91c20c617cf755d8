"""Token ids of texts, with a cache of the pieces between special tokens.

A tokenizer first cuts a text at special tokens such as `<|im_start|>`, so a piece between two of
them has the same ids everywhere. The system prompt and the earlier messages of a chat are therefore
encoded only once. New pieces are encoded word by word (words.py).
"""

import json
import re
from collections.abc import Iterator
from threading import Lock
from typing import Any

from tokenizers import AddedToken, Tokenizer

from mmhash.errors import InputValueError, LimitError
from mmhash.lru import LruCache
from mmhash.prompts.limits import MAX_TEXT
from mmhash.prompts.section import UnknownModelError
from mmhash.prompts.words import Tenant, WordEncoder, bytes_of, find_words, has_known_expressions

MAX_CACHE = 8 << 20
"""The estimated size of a model's cache, in bytes."""

_MAX_PIECE = 256 << 10  # characters; longer pieces are not cached

# Tokens at which texts are cut. If every token of a tokenizer has this form or no brackets, no two
# overlap, and a single regular expression finds them all.
_NAMED = re.compile(r"[<\[][^<>\[\]]{1,200}[>\]]")
# Most tokenizers need only this one. Python finds a fixed character much faster than either of two.
_ANGLED = re.compile(_NAMED.pattern.replace(r"[<\[]", "<", 1))
_BRACKET = re.compile(r"[<>\[\]]")

# Pre-tokenizers that treat a piece alike wherever it is. Metaspace may treat the first piece
# differently.
_LOCAL = frozenset(
    "BertPreTokenizer ByteLevel CharDelimiterSplit Digits Punctuation Split UnicodeScripts "  # noqa: SIM905
    "Whitespace WhitespaceSplit".split()
)


class TextEncoder:
    """A tokenizer with a cache. Threads may share it.

    Timing reveals whether a text is cached, so each tenant has its own entries.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._cuts = _find_cuts(tokenizer)
        is_angled = all(token.startswith("<") for token in self._cuts)
        self._candidates = _ANGLED if is_angled else _NAMED
        self.has_known_expressions = has_known_expressions(tokenizer)
        """True if encoding a short text never takes long."""
        words = find_words(tokenizer)
        # The tokenizer would match added tokens that are no cuts inside the words.
        is_cut = len(self._cuts) == len(tokenizer.get_added_tokens_decoder())
        self._words = None if words is None or not is_cut else WordEncoder(words, tokenizer)
        self._adds_tokens = tokenizer.num_special_tokens_to_add(is_pair=False) > 0
        self._cached: LruCache[tuple[Tenant, str], list[int]] = LruCache(
            MAX_CACHE, lambda name, ids: bytes_of(name[1], ids)
        )
        self._lock = Lock()

    def encode(
        self, text: str, *, add_special_tokens: bool = False, tenant: Tenant = None
    ) -> list[int]:
        """Return the ids of a tenant's text. Raise InputValueError if it has lone surrogates."""
        if len(text) > MAX_TEXT:
            raise LimitError(f"the text of a prompt must have at most {MAX_TEXT} characters")
        if not self._cuts or (add_special_tokens and self._adds_tokens):
            return self._encode(text, add_special_tokens=add_special_tokens)
        ids: list[int] = []
        start = 0
        for match in self._candidates.finditer(text):
            token = self._cuts.get(match[0])
            if token is not None:
                if start < match.start():
                    ids += self._encode_piece(text[start : match.start()], tenant)
                ids.append(token)
                start = match.end()
        if start < len(text):
            ids += self._encode_piece(text[start:], tenant)
        return ids

    def token_id(self, text: str) -> int:
        """Return the id of a token. Raise UnknownModelError if the tokenizer has no such token."""
        found: int | None = self._tokenizer.token_to_id(text)
        if found is None:
            raise UnknownModelError(f"the tokenizer has no token {text[:60]!r}")
        return found

    def token_text(self, token_id: int) -> str | None:
        """Return a token's text as the tokenizer spells it, or None if the token is unknown."""
        text: str | None = self._tokenizer.id_to_token(token_id)
        return text

    def clear(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._cached.clear()
        if self._words is not None:
            self._words.clear()

    def _encode_piece(self, text: str, tenant: Tenant) -> list[int]:
        if len(text) > _MAX_PIECE:
            return self._encode(text)
        name = (tenant, text)
        with self._lock:
            found = self._cached.get(name)
        if found is not None:
            return found
        ids = None if self._words is None else self._words.encode(text, tenant)
        if ids is None:
            ids = self._encode(text)
        with self._lock:
            self._cached.put(name, ids)
        return ids

    def _encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        try:
            # Not encode(): it holds the GIL, and is slower for short texts.
            (encoding,) = self._tokenizer.encode_batch_fast(
                [text], add_special_tokens=add_special_tokens
            )
        except (TypeError, UnicodeEncodeError) as error:
            raise InputValueError("the text of a request must not have lone surrogates") from error
        except BaseException as error:
            if not is_panic(error):
                raise
            raise InputValueError(
                "the tokenizer gave up on this text: a regular expression took too many steps"
            ) from error
        return encoding.ids


def is_panic(error: BaseException) -> bool:
    """Return True if an error is a panic of the tokenizers package, which is not an Exception."""
    return type(error).__name__ == "PanicException"


def _find_cuts(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the tokens at which a text may be cut. Empty if a cut could change the ids."""
    added = tokenizer.get_added_tokens_decoder()
    if not (_is_local(tokenizer) and all(map(_is_plain, added.values()))):
        return {}
    # The tokenizer matches normalized tokens later, inside the pieces.
    return {
        token.content: number
        for number, token in added.items()
        if not token.normalized and _NAMED.fullmatch(token.content)
    }


def _is_plain(token: AddedToken) -> bool:
    """Return True if a token matches by its own text alone, whatever surrounds it."""
    if token.lstrip or token.rstrip or token.single_word:
        return False
    if token.normalized:
        return True
    return bool(_NAMED.fullmatch(token.content)) or not _BRACKET.search(token.content)


def _is_local(tokenizer: Tokenizer) -> bool:
    """Return True if the pre-tokenizer treats a piece alike at every place."""
    if tokenizer.encode_special_tokens or tokenizer.pre_tokenizer is None:
        return not tokenizer.encode_special_tokens
    return all(
        step.get("type") in _LOCAL
        or (step.get("type") == "Metaspace" and step.get("prepend_scheme") in {"always", "never"})
        for step in _steps(json.loads(tokenizer.pre_tokenizer.__getstate__()))
    )


def _steps(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the steps of a pre-tokenizer, including those nested in sequences."""
    if state.get("type") != "Sequence":
        yield state
        return
    for step in state["pretokenizers"]:
        yield from _steps(step)
