"""The clean-up in a forked child."""

import gc
import subprocess
import sys
import weakref

from mmhash.forks import keep_inherited


class Connection:
    """Anything that a weak reference can name."""


def test_what_a_child_inherits_is_not_collected() -> None:
    connection = Connection()
    reference = weakref.ref(connection)
    keep_inherited(connection)
    del connection
    gc.collect()
    assert reference() is not None


FORKED = """
import os, sys
from mmhash.forks import call_in_child, current_process, fork_count

class Owner:
    pass

owner, gone, called = Owner(), Owner(), []
call_in_child(owner, called.append)
call_in_child(gone, called.append)
del gone
parent = current_process()
pid = os.fork()
if pid == 0:
    is_right = called == [owner] and fork_count() == 1 and current_process() != parent
    os._exit(0 if is_right else 1)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status) or len(called))
"""


def test_actions_run_in_the_child_while_their_owner_exists() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], check=False).returncode == 0
