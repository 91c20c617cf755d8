"""The tables of the docs that repeat the code: engines, settings, problems and metrics.

python -m tests.docs.tables    # write them into the pages
"""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic_settings import BaseSettings

from mmhash.engines.registry import ENGINES
from mmhash.prompts.families.checked import _VLLM
from mmhash_service.gateway.fleet_metrics import GAUGES, PREFIX
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.guard.settings import GuardSettings
from mmhash_service.problems.catalogue import PROBLEMS
from mmhash_service.settings import Settings
from mmhash_service.telemetry.metrics import REGISTRY

DOCS = Path(__file__).parents[2] / "docs"

TREATMENTS = {
    "hash": "tag",
    "hashes": "tags for all",
    "encoder": "tags for all",
    "feature": "removed",
    "peer": "removed",
    "peers": "removed",
    "header": "removed",
}


def releases() -> Iterator[str]:
    """Yield the rows of the known releases."""
    yield "| engine | name | releases with the same recipe |"
    yield "| --- | --- | --- |"
    for engine in ENGINES:
        yield f"| {engine.title} | `{engine.name}` | {', '.join(map(str, engine.releases))} |"


def hash_fields() -> Iterator[str]:
    """Yield the rows of the request fields that carry a hash."""
    yield "| engine | release | request | field | value |"
    yield "| --- | --- | --- | --- | --- |"
    for engine in ENGINES:
        for row in engine.hash_fields:
            yield f"| {engine.title} | {row.releases} | {row.request} | {row.field} | {row.value} |"


def caller_fields() -> Iterator[str]:
    """Yield the rows of the request fields by which a caller reaches an engine's caches."""
    yield "| engine | field | releases | where | effect | the guard |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for engine in ENGINES:
        for row in engine.caller_fields:
            yield (
                f"| {engine.title} | `{row.name}` | {row.releases} | {row.where} | "
                f"{row.effect} | {TREATMENTS[row.kind]} |"
            )


def settings(of: type[BaseSettings], prefix: str) -> Iterator[str]:
    """Yield the rows of settings."""
    yield "| setting | variable | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, field in of.model_fields.items():
        default = "" if field.is_required() else shown(field.default)
        yield f"| `{name}` | `{prefix}{name.upper()}` | {default} | {field.description} |"


def shown(default: object) -> str:
    """Return a default in the form that its variable needs."""
    if default is None:
        return "unset"
    if isinstance(default, str):
        return f"`{default}`"
    return f"`{json.dumps([*default] if isinstance(default, frozenset) else default)}`"


def problems() -> Iterator[str]:
    """Yield the rows of problems: their names, status and detail."""
    yield "| name | status | detail |"
    yield "| --- | --- | --- |"
    for name, (status, detail) in PROBLEMS.items():
        yield f"| `{name}` | {status} | {detail} |"


def metrics() -> Iterator[str]:
    """Yield the rows of the metrics."""
    yield "| metric | labels | meaning |"
    yield "| --- | --- | --- |"
    for collector in REGISTRY._collector_to_names:
        labels = ", ".join(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield f"| {name} | {labels} | {family.documentation} |"
    for name, meaning in GAUGES.items():
        yield f"| {PREFIX}{name} | worker | {meaning} |"


def checked_types() -> Iterator[str]:
    """Yield the rows of the model types whose processor is asked, by their items."""
    yield "| items | `model_type` |"
    yield "| --- | --- |"
    by_items: dict[str, list[str]] = {}
    for name, texts in _VLLM.items():
        by_items.setdefault(", ".join(texts), []).append(f"`{name}`")
    for items, names in sorted(by_items.items()):
        yield f"| {items} | {', '.join(names)} |"


TABLES = {
    "engines.md": [list(releases()), list(hash_fields())],
    "gateway.md": [list(settings(GatewaySettings, "MMHASH_GATEWAY_"))],
    "guard.md": [
        list(caller_fields()),
        list(settings(GuardSettings, "MMHASH_GUARD_")),
    ],
    "observability.md": [list(metrics())],
    "problems.md": [list(problems())],
    "prompts.md": [list(checked_types())],
    "settings.md": [list(settings(Settings, "MMHASH_"))],
}


def replace_table(lines: list[str], table: list[str]) -> list[str]:
    """Return the lines of a page with the table of the same first line replaced."""
    start = end = lines.index(table[0])
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return lines[:start] + table + lines[end:]


if __name__ == "__main__":
    for name, tables in TABLES.items():
        lines = (DOCS / name).read_text().splitlines()
        for table in tables:
            lines = replace_table(lines, table)
        (DOCS / name).write_text("\n".join(lines) + "\n")
