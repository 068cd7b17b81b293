"""Expected values are the manual's, or were taken from PostgreSQL 16 and 18."""

from __future__ import annotations

import pytest

from gateway.errors import ValueFormatError
from gateway.pgtypes import macaddr, network, network_text
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.network import Inet


def inet(text: str) -> Inet:
    return network.parse_inet(text.encode())


@pytest.mark.parametrize(
    "text", [b"", b"10.1", b"1.2.3.4/33", b"1.2.3.4/-1", b"1.2.3.4/x", b"::/129", b":::",
             b"1.2.3.256"]
)  # fmt: skip
def test_what_is_no_address_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        network.parse_inet(text)


def test_addresses_sort_by_family_network_mask_and_host() -> None:
    texts = ["::/0", "10.1.2.0/24", "10.1.2.3/24", "10.1.2.3", "10.0.0.0/8", "10.255.0.1/8",
             "9.0.0.0", "10.1.0.0/16", "::1"]  # fmt: skip

    assert sorted(texts, key=inet) == [
        "9.0.0.0", "10.0.0.0/8", "10.255.0.1/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/24",
        "10.1.2.3", "::/0", "::1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "left", "right", "expected"),
    [
        (network.contained, "192.168.1.5", "192.168.1/24", True),
        (network.contained, "192.168.1.0/24", "192.168.1.0/24", False),
        (network.contained, "192.168.0.5", "192.168.1.0/24", False),
        (network.contained_or_equal, "192.168.1.7/24", "192.168.1.0/24", True),
        (network.contains, "192.168.1.0/24", "192.168.1.5", True),
        (network.contains_or_equal, "192.168.1.0/24", "192.168.1.0/24", True),
        (network.overlaps, "192.168.1.0/24", "192.168.1.80/28", True),
        (network.overlaps, "192.168.1.80/28", "192.168.2.0/24", False),
        (network.overlaps, "0.0.0.0/0", "::/0", False),
    ],
)
def test_inclusion_as_in_the_manual(
    function: object, left: str, right: str, expected: bool
) -> None:
    right = right.replace("192.168.1/", "192.168.1.0/")
    assert function(inet(left), inet(right)) is expected  # type: ignore[operator]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (network.bitwise_not(inet("192.168.1.6")), "63.87.254.249"),
        (network.bitwise_and(inet("192.168.1.6"), inet("0.0.0.255")), "0.0.0.6"),
        (network.bitwise_or(inet("192.168.1.6"), inet("0.0.0.255")), "192.168.1.255"),
        (network.add(inet("192.168.1.6"), 25), "192.168.1.31"),
        (network.subtract_number(inet("192.168.1.43"), 36), "192.168.1.7"),
        (network.broadcast(inet("192.168.1.5/24")), "192.168.1.255/24"),
        (network.host_mask(inet("192.168.23.20/30")), "0.0.0.3"),
        (network.net_mask(inet("192.168.1.5/24")), "255.255.255.0"),
        (network.network(inet("192.168.1.5/24")), "192.168.1.0/24"),
        (network.merge(inet("192.168.1.5/24"), inet("192.168.2.5/24")), "192.168.0.0/22"),
        (network.set_mask_length(inet("192.168.1.5/24"), 16), "192.168.1.5/16"),
        (network.set_cidr_mask_length(inet("192.168.1.0/24"), 16), "192.168.0.0/16"),
        (network.set_mask_length(inet("::1/64"), -1), "::1"),
    ],
)
def test_addresses_made_of_addresses_as_in_the_manual(result: Inet, expected: str) -> None:
    assert result == inet(expected)


def test_the_difference_of_ipv6_addresses_wraps_around() -> None:
    last = inet("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")

    assert network.subtract(inet("192.168.1.43"), inet("192.168.1.19")) == 24
    assert network.subtract(last, inet("::")) == -1
    with pytest.raises(EvaluationError, match="result is out of range"):
        network.subtract(inet("1::"), inet("::"))


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (network.bitwise_and, ("1.2.3.4", "::"), "cannot AND inet values of different sizes"),
        (network.bitwise_or, ("1.2.3.4", "::"), "cannot OR inet values of different sizes"),
        (network.subtract, ("1.2.3.4", "::"), "cannot subtract inet values of different sizes"),
        (network.merge, ("1.2.3.4", "::"), "cannot merge addresses from different families"),
        (network.add, ("255.255.255.255", 1), "result is out of range"),
        (network.subtract_number, ("0.0.0.0", 1), "result is out of range"),
        (network.set_mask_length, ("1.2.3.4", 33), "invalid mask length: 33"),
    ],
)
def test_what_the_server_refuses_raises_its_error(
    function: object, arguments: tuple[object, ...], message: str
) -> None:
    values = [inet(value) if isinstance(value, str) else value for value in arguments]

    with pytest.raises(EvaluationError, match=f"^{message}$"):
        function(*values)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("192.168.1.0/24", b"192.168.1.0"),
        ("0:0:0:0:0:0:0:0", b"::"),
        ("0:0:0:0:0:0:0:1", b"::1"),
        ("::7f00:1", b"::127.0.0.1"),
        ("::ffff:7f00:1", b"::ffff:127.0.0.1"),
        ("1:0:0:2:0:0:0:3", b"1:0:0:2::3"),
        ("1:0:2:3:4:5:6:7", b"1:0:2:3:4:5:6:7"),
        ("0:0:1::", b"0:0:1::"),
    ],
)
def test_an_address_is_shown_as_the_server_does(text: str, host: bytes) -> None:
    assert network_text.host(inet(text)) == host
    assert network_text.show(inet(text)) == host + b"/%d" % inet(text).masklen


@pytest.mark.parametrize(
    ("text", "as_inet", "as_cidr"),
    [
        ("10.1.0.0/32", b"10.1.0.0", b"10.1.0.0/32"),
        ("10.1.0.0/16", b"10.1.0.0/16", b"10.1/16"),
        ("0.0.0.0/0", b"0.0.0.0/0", b"0/0"),
        ("10.128.0.0/9", b"10.128.0.0/9", b"10.128/9"),
        ("2001:db8::/32", b"2001:db8::/32", b"2001:db8/32"),
        ("::/0", b"::/0", b"::/0"),
        ("::ffff:1.2.3.0/120", b"::ffff:1.2.3.0/120", b"::ffff:1.2.3/120"),
    ],
)
def test_addresses_are_abbreviated_as_the_server_does(
    text: str, as_inet: bytes, as_cidr: bytes
) -> None:
    assert network_text.abbreviate_inet(inet(text)) == as_inet
    assert network_text.abbreviate_cidr(inet(text)) == as_cidr


MAC, MAC8 = b"12:34:56:78:90:ab", b"12:34:56:ff:fe:78:90:ab"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (macaddr.truncate(MAC), b"12:34:56:00:00:00"),
        (macaddr.truncate(MAC8), b"12:34:56:00:00:00:00:00"),
        (macaddr.set_7th_bit(b"00:34:56:ab:cd:ef:00:00"), b"02:34:56:ab:cd:ef:00:00"),
        (macaddr.to_macaddr8(MAC), MAC8),
        (macaddr.to_macaddr(MAC8), MAC),
        (macaddr.bitwise_not(b"00:ff:0f:f0:55:aa"), b"ff:00:f0:0f:aa:55"),
        (macaddr.bitwise_and(MAC, b"ff:00:ff:00:0f:f0"), b"12:00:56:00:00:a0"),
        (macaddr.bitwise_or(MAC, b"ff:00:ff:00:0f:f0"), b"ff:34:ff:78:9f:fb"),
    ],
)
def test_operations_on_mac_addresses(result: bytes, expected: bytes) -> None:
    assert result == expected


@pytest.mark.parametrize("text", [b"", b"12:34", b"12-34-56-78-90-ab", b"12:34:56:78:90:AB", MAC8])
def test_what_is_no_mac_address_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        macaddr.parse_macaddr(text)


def test_only_a_macaddr8_with_fffe_in_its_middle_becomes_a_macaddr() -> None:
    with pytest.raises(EvaluationError, match="macaddr8 data out of range to convert to macaddr"):
        macaddr.to_macaddr(b"12:34:56:78:90:ab:cd:ef")
