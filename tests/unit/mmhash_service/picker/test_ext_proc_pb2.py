"""The generated messages match the .proto file."""

from pathlib import Path

import grpc_tools
from grpc_tools import protoc

import mmhash_service

SERVICE = Path(mmhash_service.__file__).parents[1]
PROTO = "mmhash_service/picker/ext_proc.proto"


def test_the_messages_are_those_of_the_proto(tmp_path: Path) -> None:
    included = Path(grpc_tools.__file__).parent / "_proto"
    paths = [f"-I{SERVICE}", f"-I{included}", f"--python_out={tmp_path}"]
    assert protoc.main(["protoc", *paths, PROTO]) == 0
    name = PROTO.replace(".proto", "_pb2.py")
    assert (tmp_path / name).read_text() == (SERVICE / name).read_text(), "generate it again"
