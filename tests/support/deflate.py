"""Makes compressed zeros for bombs without compressing them, because zlib would take long."""

import zlib

MIB = 1 << 20


def deflated_zeros(mib: int) -> bytes:
    """Return a zlib stream that unpacks to this many MiB of zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    adler = (mib * MIB % 65521) << 16 | 1
    return b"\x78\xda" + block * mib + packer.flush() + adler.to_bytes(4, "big")
