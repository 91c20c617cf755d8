"""Compressed zeros for bombs, made without compressing them: zlib takes 0.4 s for 256 MiB."""

import zlib

MIB = 1 << 20


def deflated_zeros(mib: int) -> bytes:
    """Return a zlib stream that unpacks to so many MiB of zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    adler = (mib * MIB % 65521) << 16 | 1
    return b"\x78\xda" + block * mib + packer.flush() + adler.to_bytes(4, "big")
