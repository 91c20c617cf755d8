"""The descriptors match the .proto file."""

from pathlib import Path

import grpc_tools
from grpc_tools import protoc

from mmhash_service.picker.ext_proc import DESCRIPTORS

SERVICE = DESCRIPTORS.parents[2]
PROTO = "mmhash_service/picker/ext_proc.proto"


def test_the_descriptors_are_those_of_the_proto(tmp_path: Path) -> None:
    included = Path(grpc_tools.__file__).parent / "_proto"
    written = tmp_path / "written.binpb"
    paths = [f"-I{SERVICE}", f"-I{included}", f"--descriptor_set_out={written}"]
    assert protoc.main(["protoc", *paths, PROTO]) == 0
    assert written.read_bytes() == DESCRIPTORS.read_bytes(), "write them again"
