"""PNG files, chunk by chunk."""

import struct
import zlib


def chunk(name: bytes, content: bytes) -> bytes:
    """Return a chunk with its length and its checksum."""
    checksum = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)


def png(width: int, height: int, *chunks: bytes, color_type: int = 0) -> bytes:
    """Return a file with 8 bits per channel, and these chunks between its header and its end."""
    header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
    parts = chunk(b"IHDR", header), *chunks, chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
