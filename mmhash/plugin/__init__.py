"""mmhash inside an engine: SGLang and vLLM call these functions through entry points.

Installing the library changes nothing by itself. The variable MMHASH_PLUGIN says what to switch on:
any of `keys`, `guard` and `features`, separated by commas. Without the variable, no other module of
the library is imported.
"""

import logging
import os

logger = logging.getLogger("mmhash.plugin")

VARIABLE = "MMHASH_PLUGIN"
FEATURES = ("keys", "guard", "features")


def register_in_sglang() -> None:
    """Register the hooks that MMHASH_PLUGIN asks for."""
    if features := chosen("SGLang"):
        from mmhash.plugin.sglang import register  # noqa: PLC0415

        register(features)


def register_in_vllm() -> None:
    """Wrap the methods that MMHASH_PLUGIN asks for."""
    if features := chosen("vLLM"):
        from mmhash.plugin.vllm import register  # noqa: PLC0415

        register(features)


def chosen(engine: str) -> frozenset[str]:
    """Return what MMHASH_PLUGIN switches on; exit the engine if the variable is misspelled."""
    text = os.environ.get(VARIABLE, "")
    names = frozenset(filter(None, (name.strip() for name in text.split(","))))
    if unknown := sorted(names.difference(FEATURES)):
        # Engines only log what a plugin raises, and would start without the guard.
        raise SystemExit(f"{VARIABLE} names {unknown[0]!r}: choose from {', '.join(FEATURES)}")
    if names:
        logger.warning("mmhash is on in %s: %s", engine, ", ".join(sorted(names)))
    return names
