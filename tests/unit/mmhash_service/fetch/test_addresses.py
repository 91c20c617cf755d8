"""Addresses that may be dialled."""

from ipaddress import ip_address, ip_network

import pytest

from mmhash_service.fetch.addresses import find_refused, is_public

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


def test_python_s_own_tables_call_nothing_global_that_is_dialled_and_is_special() -> None:
    for text in PUBLIC:
        assert ip_address(text).is_global
    for text in SPECIAL:
        if ip_address(text).is_private or ip_address(text).is_multicast:
            assert not is_public(ip_address(text))


def test_an_operator_s_network_is_dialled_and_only_that() -> None:
    networks = [ip_network("10.1.0.0/16"), ip_network("fd00::/8"), ip_network("fe80::/10")]
    asked = ["10.1.2.3", "fd00::1", "10.2.0.1", "::ffff:10.1.2.3", "fe80::1", "fe80::1%eth0"]
    assert find_refused(asked, networks) == ["10.2.0.1", "::ffff:10.1.2.3", "fe80::1%eth0"]
