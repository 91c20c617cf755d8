"""The messages of ext_proc.proto, from its descriptors.

Unlike the code that protoc generates, descriptors suit every release of protobuf.
"""

from pathlib import Path
from typing import Any

from google.protobuf import (
    descriptor_pool,
    message_factory,
    struct_pb2,  # noqa: F401  (the descriptors import it)
)
from google.protobuf.descriptor_pb2 import FileDescriptorSet

DESCRIPTORS = Path(__file__).with_suffix(".binpb")
(_FILE,) = FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file
_POOL = descriptor_pool.Default()
_POOL.Add(_FILE)


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_FILE.package}.{name}"))


HttpHeaders = _message("HttpHeaders")
ProcessingRequest = _message("ProcessingRequest")
ProcessingResponse = _message("ProcessingResponse")

_BODY_MODE = _POOL.FindEnumTypeByName(f"{_FILE.package}.BodyMode").values_by_name
BUFFERED: int = _BODY_MODE["BUFFERED"].number
FULL_DUPLEX_STREAMED: int = _BODY_MODE["FULL_DUPLEX_STREAMED"].number
