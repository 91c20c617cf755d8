"""How much CPU time and memory an image may take, by its bytes, frames and pixels.

The limits are several times what noise and flat images of 8 megapixels need. A file that exceeds
them is an attack, and its process is killed.
"""

_FLOOR_S = 0.5
_S_PER_BYTE = 100e-9
_S_PER_FRAME = 0.25e-3
_S_PER_PIXEL = 100e-9

# Includes memory that malloc keeps from earlier images (tune_malloc).
_FLOOR_BYTES = 128 << 20
_COPIES = 2
_BYTES_PER_PIXEL = 20

# About 4 megapixels. One decoder takes no image that costs more.
SHORT_S = 1.0


def cpu_seconds(nbytes: int, frames: int = 0, pixels: int = 0) -> float:
    """Return the CPU time that an image may take."""
    return _FLOOR_S + nbytes * _S_PER_BYTE + frames * _S_PER_FRAME + pixels * _S_PER_PIXEL


def memory_bytes(nbytes: int, pixels: int = 0) -> int:
    """Return the memory that an image may take beyond that of the idle process."""
    return _FLOOR_BYTES + _COPIES * nbytes + _BYTES_PER_PIXEL * pixels
