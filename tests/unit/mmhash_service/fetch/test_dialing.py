"""The checked address is the one that is dialled, on real sockets."""

import asyncio
import socket
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import httpcore
import pytest

from mmhash_service.fetch.dialing import CheckedBackend, find_refused, resolve
from mmhash_service.fetch.remote import Refused
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


def test_the_address_that_was_checked_is_dialled(second: Any) -> None:
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    assert dial(CheckedBackend(NETWORKS, names.resolve), second.port) == "127.0.0.2"
    assert names.asked == ["name.example"]


@pytest.mark.parametrize(
    "answer",
    [["127.0.0.3"], ["127.0.0.1", "127.0.0.3"], ["8.8.8.8", "127.0.0.3"], ["::ffff:127.0.0.1"]],
)
def test_one_forbidden_address_refuses_the_host(origin: Any, answer: list[str]) -> None:
    with pytest.raises(Refused, match=f"address {answer[-1]} is not allowed$"):
        dial(CheckedBackend(NETWORKS, Names(answer).resolve), origin.port)
    assert origin.connections == 0


def test_a_changed_dns_answer_is_checked_again(origin: Any) -> None:
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


def test_the_next_address_is_tried_if_one_refuses(second: Any) -> None:
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


PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2606:4700::1111",
    "2a00:1450:4001::1",
]

SPECIAL = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.254",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::10.0.0.1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_dialled(address: str) -> None:
    assert find_refused([address], []) == []


@pytest.mark.parametrize("address", SPECIAL)
def test_a_special_address_is_not(address: str) -> None:
    assert find_refused(["1.1.1.1", address], []) == [address]


def test_an_operator_s_network_is_dialled_and_only_that() -> None:
    networks = [ip_network("10.1.0.0/16"), ip_network("fd00::/8"), ip_network("fe80::/10")]
    asked = ["10.1.2.3", "fd00::1", "10.2.0.1", "::ffff:10.1.2.3", "fe80::1", "fe80::1%eth0"]
    assert find_refused(asked, networks) == ["10.2.0.1", "::ffff:10.1.2.3", "fe80::1%eth0"]
