"""Resolved addresses are checked, and the checked address is dialled: with real sockets."""

import asyncio
import socket
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import httpcore
import pytest

from mmhash_service.fetch.dialing import CheckedBackend, resolve
from mmhash_service.fetch.failures import Refused
from tests.support.origin import Origin
from tests.support.ports import free_port

NETWORKS = [ip_network("127.0.0.1/32"), ip_network("127.0.0.2/32")]


class Names:
    """A name server whose answers a test gives, one after another."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = iter(answers)
        self.asked: list[str] = []

    async def resolve(self, host: str, _port: int) -> list[str]:
        self.asked.append(host)
        return next(self._answers)


def dial(backend: CheckedBackend, port: int, timeout: float | None = 20) -> str:
    """Connect, and tell to which address."""

    async def connect() -> str:
        stream = await backend.connect_tcp("name.example", port, timeout)
        address = stream.get_extra_info("server_addr")[0]
        await stream.aclose()
        return address

    return asyncio.run(connect())


@pytest.fixture
def second() -> Iterator[Any]:
    origin = Origin("127.0.0.2", port=free_port())  # no client has it at another address
    yield origin
    origin.close()


def test_the_very_address_that_was_checked_is_dialled(second: Any) -> None:
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    assert dial(CheckedBackend(NETWORKS, names.resolve), second.port) == "127.0.0.2"
    assert names.asked == ["name.example"]


@pytest.mark.parametrize(
    "answer",
    [["127.0.0.3"], ["127.0.0.1", "127.0.0.3"], ["8.8.8.8", "127.0.0.3"], ["::ffff:127.0.0.1"]],
)
def test_one_bad_address_is_enough(origin: Any, answer: list[str]) -> None:
    with pytest.raises(Refused, match=f"address {answer[-1]} is not allowed$"):
        dial(CheckedBackend(NETWORKS, Names(answer).resolve), origin.port)
    assert origin.connections == 0


def test_an_answer_that_changes_is_checked_again(origin: Any) -> None:
    names = Names(["127.0.0.1"], ["127.0.0.3"])
    backend = CheckedBackend(NETWORKS, names.resolve)
    assert dial(backend, origin.port) == "127.0.0.1"
    with pytest.raises(Refused):
        dial(backend, origin.port)


def test_a_name_without_an_address_is_refused() -> None:
    async def fail(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    with pytest.raises(Refused, match="no address"):
        dial(CheckedBackend(NETWORKS, fail), 1)


def test_the_next_address_is_tried_when_one_takes_nothing(second: Any) -> None:
    with socket.socket() as deaf:  # it has the port of the first, and does not listen
        deaf.bind(("127.0.0.1", second.port))
        names = Names(["127.0.0.1", "127.0.0.2"])
        assert dial(CheckedBackend(NETWORKS, names.resolve), second.port) == "127.0.0.2"
        names = Names(["127.0.0.1"] * 4 + ["127.0.0.2"])
        with pytest.raises(httpcore.ConnectError):
            dial(CheckedBackend(NETWORKS, names.resolve), second.port, None)


def test_the_system_s_resolver_gives_addresses() -> None:
    assert asyncio.run(resolve("127.0.0.1", 80)) == ["127.0.0.1"]
    assert {"127.0.0.1", "::1"} >= set(asyncio.run(resolve("localhost", 80))) != set()
