"""Images for tests of the memo."""

import pytest

from tests.support import memo


@pytest.fixture(scope="session")
def images() -> list[bytes]:
    """Small images, all different."""
    return memo.small_images()
