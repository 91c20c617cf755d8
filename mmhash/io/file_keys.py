"""The digest and the key of a file, by its path."""

import os
from pathlib import Path
from typing import Literal

from mmhash.arguments import check_choice
from mmhash.digest import Algorithm, Digest, check_algorithm
from mmhash.framing import check_tenant, frame
from mmhash.hashing import digest
from mmhash.io.files import hash_file
from mmhash.io.images import read_image_file


def digest_file(
    path: str | os.PathLike[str], *, algorithm: Algorithm = "blake3", threads: int | None = None
) -> Digest:
    """Return the digest of a file's bytes, as `b3sum` computes it.

    Args:
        path: The file, which is read in pieces.
        algorithm: `"blake3"` or `"xxh3"`.
        threads: The number of threads; all cores by default.

    >>> digest_file(photo) == mmhash.digest(photo.read_bytes())
    True
    """
    with Path(path).open("rb") as file:
        return hash_file(file, check_algorithm(algorithm), threads)[0]


def key_file(
    path: str | os.PathLike[str],
    *,
    of: Literal["bytes", "pixels"] = "bytes",
    algorithm: Algorithm = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
) -> Digest:
    """Return the key of a file's bytes, or of the image in the file.

    Args:
        path: The file.
        of: `"pixels"` decodes an image; the key covers all of its frames.
        algorithm: The algorithm of the digest in the key.
        tenant: 32 secret bytes, as in `key()`.
        threads: The number of threads; all cores by default.

    >>> key_file(photo) == mmhash.key(photo.read_bytes())
    True
    >>> key_file(photo, of="pixels") == mmhash.key(Image.open(photo))
    True
    """
    check_choice("of", of, "bytes", "pixels")
    check_tenant(tenant)
    if of == "pixels":
        with Path(path).open("rb") as file:
            image = read_image_file(file)
        content = digest(image.pixels, algorithm=algorithm, threads=threads)
        return image.key(content, tenant=tenant)
    content = digest_file(path, algorithm=algorithm, threads=threads)
    return frame("bytes", "", (), content, tenant=tenant)
