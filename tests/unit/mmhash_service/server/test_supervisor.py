"""When the supervisor restarts a process; test_server.py runs real processes."""

from mmhash_service.server.supervisor import restart_delay


def test_each_failure_doubles_the_delay_up_to_a_bound() -> None:
    delays = [restart_delay(failures) for failures in range(1, 10)]
    assert delays == [0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert restart_delay(10**9) == 30
