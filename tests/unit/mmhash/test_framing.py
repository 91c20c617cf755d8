import itertools

import pytest

from mmhash import Digest, InputError
from mmhash.fields import field
from mmhash.framing import frame

CONTENT = Digest("blake3", bytes(32))


def test_fields_cannot_be_confused() -> None:
    for left, right in itertools.permutations([(b"ab", b"c"), (b"a", b"bc"), (b"abc", b"")], 2):
        assert b"".join(map(field, left)) != b"".join(map(field, right))


def test_every_field_changes_the_frame() -> None:
    frames = [
        frame("tensor", "uint8", (1, 2), CONTENT),
        frame("bytes", "uint8", (1, 2), CONTENT),
        frame("tensor", "int8", (1, 2), CONTENT),
        frame("tensor", "uint8", (2, 1), CONTENT),
        frame("tensor", "uint8", (1, 2, 1), CONTENT),
        frame("tensor", "uint8", (), CONTENT),
        frame("tensor", "uint8", (1, 2), Digest("blake3", b"\1" * 32)),
        frame("tensor", "uint8", (1, 2), Digest("xxh3", bytes(16))),
        frame("tensor", "uint8", (1, 2), CONTENT, b"extra"),
        frame("tensor", "uint8", (1, 2), CONTENT, tenant=bytes(32)),
        frame("tensor", "uint8", (1, 2), CONTENT, tenant=b"\1" * 32),
    ]
    assert len(set(frames)) == len(frames)


@pytest.mark.parametrize("tenant", [b"", bytes(31), bytes(33), "0" * 32, 7])
def test_tenant_is_32_bytes(tenant: bytes) -> None:
    with pytest.raises(InputError, match="tenant"):
        frame("bytes", "", (), CONTENT, tenant=tenant)
