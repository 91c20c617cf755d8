"""Hypothesis's profile, what a test costs pytest, and the tests that need a GPU."""

import gc
import logging
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from mmhash.cpu import cpu_count

# No deadline: a busy machine is not a wrong answer. A failure prints the blob that repeats it.
settings.register_profile(
    "mmhash", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# `make test` looks at fewer examples than `make test-all`.
settings.register_profile("fast", settings.get_profile("mmhash"), max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "mmhash"))

# A shell that starts us in the background ignores SIGINT, and our children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    # One process more than cores: tests wait for servers and clocks.
    return cpu_count() + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and have it ignore the modules and tests afterwards.

    Otherwise it walks through them again and again, which takes seconds of CPU.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_finish() -> None:
    # pytest adds handlers to each logger that does not propagate, six times a test. torch has 42.
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Files with slow tests run first: a long one at the end would leave the other cores idle.
    # Live tests keep the order in which they share engines.
    slow = {
        item.path
        for item in items
        if item.get_closest_marker("slow") and not item.get_closest_marker("live")
    }
    items.sort(key=lambda item: item.path not in slow)
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_tests and not _has_gpu():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
