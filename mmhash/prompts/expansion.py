"""Replace each placeholder among the token ids with the tokens of its item."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mmhash.engines.vllm.media import SCOPES
from mmhash.errors import InputValueError, LimitError
from mmhash.prompts.families.family import Family
from mmhash.prompts.families.processed import Processed
from mmhash.prompts.items import Expansion, MediaSize, PlacedItem
from mmhash.prompts.limits import MAX_TOKENS
from mmhash.prompts.processor.messages import Question
from mmhash.requests import Modality

Item = tuple[Modality, MediaSize]


class _Match(NamedTuple):
    start: int
    end: int
    item: int


def questions(family: Family, items: Sequence[Item], options: Mapping[str, Any]) -> list[Question]:
    """Return the questions for the model's processor that must be answered before the expansion."""
    if not isinstance(family, Processed):  # built-in families ask nothing
        return []
    asked = (
        family.question(modality, size, _options_of(modality, options))
        for modality, size in dict.fromkeys(_checked(family, items))
    )
    return list(dict.fromkeys(one for one in asked if one is not None))


def count_tokens(family: Family, items: Sequence[Item], options: Mapping[str, Any]) -> int:
    """Return how many tokens items take together."""
    expansions = _expand_items(family, _checked(family, items), options)
    return sum(len(one.token_ids) for one in expansions)


def expand(
    family: Family, token_ids: list[int], items: Sequence[Item], options: Mapping[str, Any]
) -> tuple[list[int], list[PlacedItem]]:
    """Return the prompt with its placeholders expanded, and the items in the request's order.

    Raise if an item has no placeholder.
    """
    _check_length(len(token_ids))
    placed: list[PlacedItem] = []
    if items:  # most prompts have none
        modalities = [modality for modality, _ in items]
        expansions = _expand_items(family, _checked(family, items), options)
        matches = _matches(family, token_ids, modalities)
        token_ids, placed = _replace(token_ids, matches, modalities, expansions)
    token_ids, placed = family.merge(token_ids, placed)
    if family.engine == "sglang":
        _check_embeds(token_ids, placed)
    return token_ids, placed


def _checked(family: Family, items: Sequence[Item]) -> Sequence[Item]:
    """Return the items, with their places if the family numbers items.

    Without places, items of the same size are equal, so each size is expanded once. Raise if the
    model takes no items of a modality.
    """
    for modality in {modality for modality, _ in items} - family.placeholders.keys():
        engine = f"{family.engine} {family.release}".strip() or "transformers"
        raise InputValueError(f"mmhash cannot plan {modality} items of this model for {engine}")
    if not family.numbers_items:
        return items
    places: Counter[Modality] = Counter()
    numbered = []
    for modality, size in items:
        numbered.append((modality, size._replace(place=places[modality])))
        places[modality] += 1
    return numbered


def _expand_items(
    family: Family, items: Sequence[Item], options: Mapping[str, Any]
) -> list[Expansion]:
    known: dict[Item, Expansion] = {}
    expansions: list[Expansion] = []
    length = 0
    for modality, size in items:
        expansion = known.get((modality, size))
        if expansion is None:
            expansion = family.expand(modality, size, _options_of(modality, options))
            known[modality, size] = expansion
        expansions.append(expansion)
        length += len(expansion.token_ids)
        _check_length(length)
    return expansions


def _options_of(modality: Modality, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options without the objects of other modalities and without empty objects."""
    own = options.get(SCOPES[modality])
    if own is not None and not isinstance(own, dict):
        raise InputValueError(f"{SCOPES[modality]} of mm_processor_kwargs must be an object")
    others = {name: one for name, one in options.items() if name not in SCOPES.values()}
    return {**others, SCOPES[modality]: own} if own else others


def _matches(family: Family, token_ids: list[int], modalities: Sequence[Modality]) -> list[_Match]:
    """Match each placeholder of the prompt with its item, in the order of the prompt."""
    placeholders = family.placeholders
    found: list[_Match] = []
    targets: dict[str, list[int]] = {}
    after: dict[Modality, int] = dict.fromkeys(modalities, 0)
    numbers: dict[Modality, int] = dict.fromkeys(modalities, 0)
    for index, modality in enumerate(modalities):
        numbers[modality] += 1
        text = placeholders[modality].target.replace("{i}", str(numbers[modality]))
        if text not in targets:
            targets[text] = family.files.encoder.encode(text)
        start = _find(token_ids, targets[text], after[modality])
        if start is None:
            raise InputValueError(
                f"the prompt has fewer placeholders for {modality} than items"
                f" ({numbers[modality] - 1}): the chat template or the text leaves some out"
            )
        after[modality] = start + len(targets[text])
        found.append(_Match(start, after[modality], index))
    return sorted(found)


def _find(token_ids: list[int], target: list[int], start: int) -> int | None:
    """Return the first position, from `start` on, at which a list of ids occurs."""
    while target:
        try:
            start = token_ids.index(target[0], start)
        except ValueError:
            return None
        if token_ids[start : start + len(target)] == target:
            return start
        start += 1
    return None


def _replace(
    token_ids: list[int],
    matches: Sequence[_Match],
    modalities: Sequence[Modality],
    expansions: Sequence[Expansion],
) -> tuple[list[int], list[PlacedItem]]:
    """Replace each placeholder. Return the items in the order of the request."""
    made: list[int] = []
    placed: dict[int, PlacedItem] = {}
    position = 0
    for match in matches:
        made += token_ids[position : match.start]
        expansion = expansions[match.item]
        start = len(made)
        made += expansion.token_ids
        embeds = [(start + first, start + last) for first, last in expansion.embeds]
        placed[match.item] = PlacedItem(
            modalities[match.item], start, len(made), embeds, expansion.grid
        )
        position = match.end
    made += token_ids[position:]
    return made, [placed[index] for index in range(len(modalities))]


def _check_length(length: int) -> None:
    if length > MAX_TOKENS:
        raise LimitError(f"the prompt has more than {MAX_TOKENS} tokens")


def _check_embeds(token_ids: list[int], items: Sequence[PlacedItem]) -> None:
    """Refuse a text that contains an item's token: SGLang would put embeddings in its place."""
    ranges = [one for item in items for one in item.embeds]
    tokens = {token_ids[start] for start, _ in ranges}
    if sum(map(token_ids.count, tokens)) > sum(end - start for start, end in ranges):
        raise InputValueError(
            "the text contains a token that the engine would read as part of an image"
        )
