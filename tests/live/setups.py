"""How the engines of live tests are started."""

from typing import Literal, NamedTuple

# Operators may switch these on: /inference/v1/generate, processing options, embeddings.
WIDE_OPEN = (
    *("--enable-scale-out", "--trust-request-mm-kwargs"),
    *("--enable-mm-embeds", "--enable-prompt-embeds"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
)


class Setup(NamedTuple):
    """A release, and how it is started."""

    engine: str
    release: str
    options: tuple[str, ...] = ()
    algorithm: str = "sha256"
    seed: str | None = None
    guard: str | None = None  # "always", "switched" by a header, or the "plugin"
    has_lora: bool = False
    model: str = "qwen2_vl"
    # Which of its tests `make live` runs. All others are slow, and `make live` must end in minutes.
    quick: Literal["all", "names", "none"] = "none"

    @property
    def name(self) -> str:
        parts = [f"{self.engine}@{self.release}"]
        if self.algorithm != "sha256":
            parts.append(self.algorithm)
        if self.seed is not None:
            parts.append(f"PYTHONHASHSEED={self.seed}")
        if self.guard == "always":
            parts.append("guard")
        if self.guard == "plugin":
            parts.append("plugin")
        if self.model != "qwen2_vl":
            parts.append(self.model)
        return ", ".join(parts)
