"""The options of a plan: how the engine was started, and how its items are keyed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mmhash.arguments import check_choice, check_int, check_optional_text
from mmhash.engines.engine import Server
from mmhash.errors import InputTypeError
from mmhash.framing import tenant_key
from mmhash.prompts.media import KnownMedia


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of a plan; `Model.plan` describes each."""

    block_size: int | None = None
    block_algorithm: str | None = None
    seed: str | None = None
    lora: str | None = None
    lora_path: str | None = None
    lookahead: int | None = None
    of: Literal["bytes", "pixels"] = "bytes"
    hashes: Literal["key", "engine"] = "key"
    tenant: bytes | None = None
    media: KnownMedia | None = None
    model_id: str | None = None
    chat_template: str | None = None
    content_format: Literal["auto", "string", "openai"] = "auto"
    server: Server = "python"
    mm_hasher_algorithm: Literal["blake3", "sha256"] = "blake3"

    def __post_init__(self) -> None:
        if self.block_size is not None:
            check_int("block_size", self.block_size, 1)
        for name in ("lora_path", "model_id", "chat_template"):
            check_optional_text(name, getattr(self, name))
        if self.tenant is not None:
            tenant_key(self.tenant)  # raises if it is malformed
        if not (self.media is None or isinstance(self.media, Mapping) or callable(self.media)):
            kind = type(self.media).__name__
            raise InputTypeError(
                f"media must be a mapping from URLs to Media, or a function, not {kind}"
            )
        check_choice("of", self.of, "bytes", "pixels")
        check_choice("hashes", self.hashes, "key", "engine")
        check_choice("content_format", self.content_format, "auto", "string", "openai")
        check_choice("server", self.server, "python", "rust", "mmhash")
        check_choice("mm_hasher_algorithm", self.mm_hasher_algorithm, "blake3", "sha256")
