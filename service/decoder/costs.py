"""The time and the memory that an image may take, by its bytes, its frames and their pixels.

Measured on one core with noise and with flat images of 8 megapixels: a pixel took 4 to 20 ns, a
byte of the file 10 to 40 ns (most in a progressive JPEG), and a pixel 4 to 17 bytes (in a WebP).
A file that needs several times as much is an attack, and its process ends.
"""

# CPU time.
_FLOOR_S = 0.5
_S_PER_BYTE = 100e-9
_S_PER_FRAME = 0.25e-3
_S_PER_PIXEL = 100e-9

# What malloc keeps from earlier images (tune_malloc) is within the floor.
_FLOOR_BYTES = 128 << 20
_COPIES = 2
_BYTES_PER_PIXEL = 20

# An image of about 4 megapixels: one decoder is always free for such, or soon.
SHORT_S = 1.0


def cpu_seconds(nbytes: int, frames: int = 0, pixels: int = 0) -> float:
    """The CPU time that such an image may take."""
    return _FLOOR_S + nbytes * _S_PER_BYTE + frames * _S_PER_FRAME + pixels * _S_PER_PIXEL


def memory_bytes(nbytes: int, pixels: int = 0) -> int:
    """The memory that such an image may take, beside that of the idle process."""
    return _FLOOR_BYTES + _COPIES * nbytes + _BYTES_PER_PIXEL * pixels
