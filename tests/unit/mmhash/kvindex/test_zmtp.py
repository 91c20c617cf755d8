"""The bytes of a ZeroMQ connection: messages, commands and limits."""

import pytest

from mmhash.errors import TransportError
from mmhash.kvindex.zmtp import MAX_COMMAND_BYTES, MAX_PARTS, Decoder, encode, greeting

OPENING = greeting(b"PUB")
LONG = b"\2" + (300).to_bytes(8, "big") + bytes(300)


def decode(data: bytes, *, max_bytes: int = 1000) -> list[list[bytes]]:
    return Decoder(max_bytes).feed(data)


def test_messages_have_short_and_long_parts() -> None:
    data = OPENING + encode([b"", b"12345678"]) + b"\1\1t" + LONG
    assert decode(data) == [[b"", b"12345678"], [b"t", bytes(300)]]


def test_the_peer_is_ready_after_its_command() -> None:
    decoder = Decoder(1000)
    decoder.feed(OPENING[:64])
    assert not decoder.is_ready
    decoder.feed(OPENING[64:])
    assert decoder.is_ready


def test_a_ping_is_answered_with_its_context() -> None:
    decoder = Decoder(1000)
    decoder.feed(OPENING + b"\4\x0a\4PING\0\x09abc")
    assert decoder.pongs == b"\4\x08\4PONGabc"


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n".ljust(64),
        OPENING[:10] + b"\2" + OPENING[11:],
        OPENING.replace(b"NULL", b"PLAIN"),
        OPENING[:64] + encode([b"early"]),
        OPENING + b"\6" + (MAX_COMMAND_BYTES + 1).to_bytes(8, "big"),
        OPENING + b"\2" + (3000).to_bytes(8, "big"),
        OPENING + (b"\3" + (700).to_bytes(8, "big") + bytes(700)) * 3,
        OPENING + b"\1\0" * (MAX_PARTS + 1),
        OPENING + b"\4\x09\5ERROR\2no",
    ],
    ids=[
        "HTTP",
        "ZMTP 2",
        "a password",
        "a message before the handshake",
        "a long command",
        "a long part",
        "long parts",
        "many parts",
        "a refusal",
    ],
)
def test_other_bytes_end_the_connection(data: bytes) -> None:
    with pytest.raises(TransportError):
        decode(data)
