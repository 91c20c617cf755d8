"""Limits of the time and memory to decode an image, by its bytes, frames and pixels.

Measured on one core with noise and with flat images of 8 megapixels: a pixel took 4 to 20 ns, a
byte of the file 10 to 40 ns (most in a progressive JPEG), and a pixel 4 to 17 bytes (in a WebP).
A file that needs several times as much is an attack, and its process is killed.
"""

# CPU time.
_FLOOR_S = 0.5
_S_PER_BYTE = 100e-9
_S_PER_FRAME = 0.25e-3
_S_PER_PIXEL = 100e-9

# The floor includes the memory that malloc keeps from earlier images (tune_malloc).
_FLOOR_BYTES = 128 << 20
_COPIES = 2
_BYTES_PER_PIXEL = 20

# An image of about 4 megapixels. One decoder takes only images up to this cost.
SHORT_S = 1.0


def cpu_seconds(nbytes: int, frames: int = 0, pixels: int = 0) -> float:
    """Return the CPU time that such an image may take."""
    return _FLOOR_S + nbytes * _S_PER_BYTE + frames * _S_PER_FRAME + pixels * _S_PER_PIXEL


def memory_bytes(nbytes: int, pixels: int = 0) -> int:
    """Return the memory that such an image may take, in addition to that of the idle process."""
    return _FLOOR_BYTES + _COPIES * nbytes + _BYTES_PER_PIXEL * pixels
