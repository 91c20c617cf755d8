"""Images, and the request for the key of one's pixels."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import memo, service


@pytest.fixture(scope="session")
def ask() -> Callable[..., dict[str, Any]]:
    """Post an image for its pixels, and return the item."""
    return memo.hash_pixels


@pytest.fixture(scope="session")
def count() -> Callable[..., float]:
    """Return the sum of a metric's series that have these labels."""
    return service.count


@pytest.fixture(scope="session")
def images() -> list[bytes]:
    """Small images, all different."""
    return memo.small_images()
