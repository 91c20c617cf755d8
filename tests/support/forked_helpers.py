"""Helpers of models' own processors, as forks of a process that has imported transformers.

The import takes seconds of CPU, and some tests need a helper for each of many models.
"""

import json
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mmhash.prompts.processor import client, helper


@contextmanager
def forked_helpers() -> Iterator[None]:
    """Have each ModelProcessor of this process start its helper as a fork."""
    orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with orders, pytest.MonkeyPatch.context() as patch:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked_helpers", str(theirs.fileno())],
                env=os.environ | client._ENVIRONMENT,
                pass_fds=[theirs.fileno()],
            )

        def start(self: client.ModelProcessor) -> socket.socket:
            mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            mine.settimeout(1.0)
            with its:
                order = json.dumps(self._arguments).encode()
                socket.send_fds(orders, [order], [its.fileno()])
            self._questions = mine
            weakref.finalize(self, mine.close)
            return mine

        patch.setattr(client.ModelProcessor, "_start", start)
        try:
            yield
        finally:
            orders.close()
            process.wait()


def main(descriptor: int) -> None:
    """Fork a helper for each order, until the last test process has closed the other end."""
    import torch
    import transformers

    helper._declare_vision_operators(torch)
    for name in ("AutoFeatureExtractor", "AutoImageProcessor", "AutoProcessor", "AutoTokenizer"):
        getattr(transformers, name)
    orders = socket.socket(fileno=descriptor)
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, 1 << 16, 1)
        if not order:
            return
        if os.fork() == 0:
            orders.close()
            directory, trusts_code, seconds = json.loads(order)
            helper.main(
                descriptors[0],
                directory,
                trusts_code=trusts_code == "1",
                seconds=float(seconds),
            )
            os._exit(0)
        os.close(descriptors[0])


if __name__ == "__main__":
    main(int(sys.argv[1]))
