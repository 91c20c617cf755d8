"""The options of plans: how the engine was started, and what is known about the media."""

from collections.abc import Mapping
from typing import Literal, Unpack, cast

from mmhash.arguments import check_choice, check_int, check_optional_text
from mmhash.engines.engine import BlockOptions, Server
from mmhash.errors import InputTypeError
from mmhash.framing import check_tenant
from mmhash.prompts.items import Media


class PlanOptions(BlockOptions, total=False):
    """The options of `Model.plan`: the options of blocks, and the following."""

    block_size: int | None
    """The tokens of a block or page: 16 for vLLM and 1 for SGLang by default."""
    of: Literal["bytes", "pixels"]
    """`"pixels"` keys the request's images by their decoded pixels."""
    hashes: Literal["key", "engine"]
    """`"engine"` uses vLLM's own names of images and leaves the request unchanged.

    This needs `model_id`. If a name cannot be computed, the request carries keys instead.
    """
    tenant: bytes | None
    """32 secret bytes, as in `key()`."""
    media: Mapping[str, Media] | None
    """The sizes and keys of media by URL."""
    model_id: str | None
    """The engine's name of the model: its directory, or its name on the Hub.

    vLLM hashes this name in its own names of images, and with a request's processor options.
    """
    chat_template: str | None
    """The engine's chat template, if it differs from the model's own."""
    server: Server
    """`"mmhash"` for SGLang with our plugin (MMHASH_PLUGIN=keys), which names images by file keys.

    `"rust"` for SGLANG_RUST_SERVER=1, which uses the file's digest.
    """
    mm_hasher_algorithm: Literal["blake3", "sha256"]
    """vLLM's `--mm-hasher-algorithm` (until 0.28 the variable VLLM_MM_HASHER_ALGORITHM).

    vLLM hashes a uuid with it if the request has processor options.
    """


_DEFAULTS = PlanOptions(
    block_algorithm=None,
    seed=None,
    lora=None,
    lora_path=None,
    lookahead=None,
    block_size=None,
    of="bytes",
    hashes="key",
    tenant=None,
    media=None,
    model_id=None,
    chat_template=None,
    server="python",
    mm_hasher_algorithm="blake3",
)


def complete(**given: Unpack[PlanOptions]) -> PlanOptions:
    """Check the options, and fill in the defaults."""
    if unknown := given.keys() - _DEFAULTS.keys():
        raise TypeError(f"plan() got an unexpected keyword argument {min(unknown)!r}")
    options = cast("PlanOptions", {**_DEFAULTS, **given})
    if options["block_size"] is not None:
        check_int("block_size", options["block_size"], 1)
    for name in ("lora_path", "model_id", "chat_template"):
        check_optional_text(name, options[name])
    check_tenant(options["tenant"])
    media = options["media"]
    if not (media is None or isinstance(media, Mapping)):
        raise InputTypeError(f"media must be a dict from URLs to Media, not {type(media).__name__}")
    check_choice("of", options["of"], "bytes", "pixels")
    check_choice("hashes", options["hashes"], "key", "engine")
    check_choice("server", options["server"], "python", "rust", "mmhash")
    check_choice("mm_hasher_algorithm", options["mm_hasher_algorithm"], "blake3", "sha256")
    return options
