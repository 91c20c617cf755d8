"""What a worker's events say of the names that are planned for it."""

import pytest

from mmhash_service.gateway.naming import ENOUGH_BLOCKS, NameCheck, read_release


def test_nothing_is_known_before_a_request() -> None:
    assert NameCheck().verdict == "unknown"


def test_blocks_that_no_event_names_are_wrong_after_a_few() -> None:
    check = NameCheck()
    check.add(found=0, missing=ENOUGH_BLOCKS - 1)
    assert check.verdict == "unknown"
    check.add(found=0, missing=1)
    assert (check.verdict, check.missing) == ("wrong", ENOUGH_BLOCKS)


def test_a_block_that_an_event_names_is_right_whatever_was_before() -> None:
    check = NameCheck()
    check.add(found=0, missing=100)
    check.add(found=1, missing=7)
    assert (check.verdict, check.missing) == ("right", 0)


def test_a_worker_that_is_restarted_as_another_release_becomes_wrong() -> None:
    check = NameCheck()
    check.add(found=50, missing=0)
    check.add(found=0, missing=ENOUGH_BLOCKS)
    assert check.verdict == "wrong"


@pytest.mark.parametrize(
    ("status", "body", "release"),
    [
        (200, b'{"version": "0.32.0"}', "0.32.0"),
        (200, b'{"version": "0.32.0+cpu"}', "0.32.0"),
        (200, b'{"version": 7}', None),
        (200, b"<html>", None),
        (404, b'{"version": "0.32.0"}', None),
    ],
)
def test_a_server_reports_its_release(status: int, body: bytes, release: str | None) -> None:
    assert read_release(status, body) == release
