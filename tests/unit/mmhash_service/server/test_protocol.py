"""Limits of the protocol that ordinary clients never reach; tests/attacks/ tests the rest."""

import resource
import sys

import pytest

from mmhash_service.server import protocol


def test_connections_leave_descriptors_to_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, expected in ((1024, 896), (64, 1), (resource.RLIM_INFINITY, sys.maxsize)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert protocol.max_connections() == expected
