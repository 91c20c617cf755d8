"""The known releases of SGLang, and the recipe of each range."""

from typing import Any, Literal, NamedTuple

from mmhash.engines.releases import Range, Releases, is_since
from mmhash.errors import InputValueError


class Recipe(NamedTuple):
    """How a range of releases computes hashes, pads and page keys."""

    # "widened": bfloat16 is first converted to float32, and a list is joined to one tensor.
    cpu_hash: Literal["widened", "raw"]
    gpu_hash: bool
    pads: Literal["modulo", "shifted", "wide"]
    mm_hashes: bool
    namespaces: bool
    wide_pages: bool
    # The Rust server (SGLANG_RUST_SERVER=1) hashes an image's file. 0.5.22 has this server too, but
    # nobody has compared its hashes.
    file_hash: bool = False


RELEASES = Releases(
    "sglang",
    Range("0.4.3", "0.5.0", Recipe("widened", False, "modulo", False, False, False)),
    Range("0.5.1", "0.5.8.post1", Recipe("widened", True, "modulo", False, False, False)),
    Range("0.5.9", "0.5.9", Recipe("widened", True, "shifted", False, False, False)),
    Range("0.5.10", "0.5.12", Recipe("raw", True, "shifted", False, False, False)),
    Range("0.5.13", "0.5.19", Recipe("raw", True, "shifted", True, False, False)),
    Range("0.5.20", "0.5.22", Recipe("raw", True, "shifted", True, True, False)),
    Range("0.5.23", "0.5.23", Recipe("raw", True, "wide", True, True, True, True)),
)
LATEST = RELEASES.latest
require = RELEASES.require


def is_rust(server: Any, version: str) -> bool:
    """Return True for the server in Rust if the release has it; refuse unknown names."""
    if server not in ("python", "rust"):
        raise InputValueError(f"server must be 'python' or 'rust', not {server!r}")
    if server == "rust" and not RELEASES.recipe(version).file_hash:
        raise InputValueError(
            f"mmhash does not know the Rust server of sglang {version}: use 0.5.23"
        )
    return bool(server == "rust")


def reads_every_form(version: str) -> bool:
    """Return True if a release has plans for tools, Messages and Responses requests.

    0.5.21 and 0.5.22 changed how tools are shown, and nobody has compared their prompts.
    """
    return version == "0.5.20" or is_since(version, "0.5.23")
