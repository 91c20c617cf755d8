"""The limits on items and images count over all parts of a request."""

import pytest

from mmhash_service.limits.capacity import MAX_ITEMS, Limits
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings


def test_the_items_of_all_parts_count_together() -> None:
    limits = Limits(Settings())
    with limits.admit() as request, request.reserve() as part:
        part.count_items(2)
        with request.reserve() as other:
            other.count_items(MAX_ITEMS - 2)
            with pytest.raises(Problem, match="too-many-items"):
                request.count_items(1)


def test_the_decoded_images_of_all_parts_count_together() -> None:
    limits = Limits(Settings(max_pixels=1000))
    with limits.admit() as request:
        for _ in range(2):
            with request.reserve() as part:
                part.count_decoded(16_000, 0)
                part.count_decoded(256_000, 1000)  # as many as the file's bytes justify
        with pytest.raises(Problem, match="too-many-items"):
            request.count_decoded(1, 0)
