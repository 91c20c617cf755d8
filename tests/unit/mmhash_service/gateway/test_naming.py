"""What a worker's events say of the names that are planned for it."""

from mmhash_service.gateway.naming import ENOUGH_BLOCKS, NameCheck


def test_nothing_is_known_before_a_request() -> None:
    assert NameCheck().verdict == "unknown"


def test_blocks_that_no_event_names_are_wrong_after_a_few() -> None:
    check = NameCheck()
    check.add(is_found=False, missing=ENOUGH_BLOCKS - 1)
    assert check.verdict == "unknown"
    check.add(is_found=False, missing=1)
    assert (check.verdict, check.missing) == ("wrong", ENOUGH_BLOCKS)


def test_a_block_that_an_event_names_is_right_whatever_was_before() -> None:
    check = NameCheck()
    check.add(is_found=False, missing=100)
    check.add(is_found=True, missing=7)
    assert (check.verdict, check.missing) == ("right", 0)


def test_a_worker_that_is_restarted_as_another_release_becomes_wrong() -> None:
    check = NameCheck()
    check.add(is_found=True, missing=0)
    check.add(is_found=False, missing=ENOUGH_BLOCKS)
    assert check.verdict == "wrong"
