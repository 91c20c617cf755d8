"""The names that vLLM gives to images whose request has no uuid: hashes of their files."""

from typing import NamedTuple

import msgspec

from mmhash.engines import vllm
from mmhash.prompts.headers import ImageHeader


class FileNaming(NamedTuple):
    """All that counts in an image's name, apart from its file."""

    release: str
    model_id: str
    algorithm: str
    options: bytes
    """The request's `mm_processor_kwargs` and `media_io_kwargs`, as JSON."""

    def name(self, file: bytes | bytearray | memoryview, header: ImageHeader) -> str | None:
        """Return the name of an image, or None if the name depends on the decoded pixels."""
        if header.is_rgb is None:
            return None
        processing, media_io = msgspec.json.decode(self.options)
        return vllm.image_identifier(
            file,
            is_rgb=header.is_rgb,
            is_keyed=header.is_keyed,
            model_id=self.model_id,
            processor_kwargs=processing,
            media_io_kwargs=media_io,
            version=self.release,
            algorithm=self.algorithm,
        )
