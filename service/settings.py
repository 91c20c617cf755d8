"""What an operator may choose, each by an environment variable (docs/settings.md)."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

# Above this Pillow refuses every image, by a rule of the whole process: none can be set higher.
PILLOW_MAX_PIXELS = 178_956_970


class Settings(BaseSettings):
    """The settings of one server."""

    model_config = SettingsConfigDict(env_prefix="MMHASH_", frozen=True)

    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(
        default=8780, ge=0, le=65535, description="The port to listen on; 0 takes any free one."
    )
    max_body_bytes: int = Field(
        default=1 << 30, ge=1, description="The longest body that is read, in bytes."
    )
    max_pixels: int = Field(
        default=PILLOW_MAX_PIXELS,
        ge=1,
        le=PILLOW_MAX_PIXELS,
        description="The most pixels of an image, all frames together; it cannot be set higher.",
    )
