"""Send formats captured from PostgreSQL 18 (`capture.py`) read as the server printed them."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.core.errors import SchemaError
from gateway.pgtypes.binary import FAULTS, Attribute, ToText, TypeInfo, compile_to_text

SENDS = Path(__file__).with_name("sends.txt")

INT4, TEXT, BOX, TIMESTAMP, INT4RANGE, MONEY, PAIR = 23, 25, 603, 1114, 3904, 790, 90_000

KNOWN = {
    info.oid: info
    for info in (
        TypeInfo(INT4, "integer", "b", "int4out", "int4send"),
        TypeInfo(TEXT, "text", "b", "textout", "textsend"),
        TypeInfo(BOX, "box", "b", "box_out", "box_send", ";"),
        TypeInfo(TIMESTAMP, "timestamp", "b", "timestamp_out", "timestamp_send"),
        TypeInfo(INT4RANGE, "int4range", "r", "range_out", "range_send", range_oid=INT4),
        TypeInfo(MONEY, "money", "b", "cash_out", "cash_send"),
        TypeInfo(1033, "aclitem", "b", "aclitemout", None),
        TypeInfo(2205, "regclass", "b", "regclassout", "regclasssend"),
    )
}

ELEMENTS = {"int4[]": INT4, "text[]": TEXT, "box[]": BOX}
RANGES = {"int4range": INT4, "tsrange": TIMESTAMP, "int4multirange": INT4RANGE}


def captured() -> Iterator[tuple[str, str, str, bytes, bytes]]:
    for line in SENDS.read_text(encoding="utf-8").splitlines():
        name, output, send, data, text = line.split(" | ", 4)
        yield name, output, send, bytes.fromhex(data), literal_eval(text).encode()


def conversion(info: TypeInfo) -> ToText:
    return compile_to_text(info.oid, {**KNOWN, info.oid: info}.__getitem__)


def type_info(name: str, output: str, send: str) -> TypeInfo:
    if name == "pair":
        attributes = (Attribute("a", INT4), Attribute("b", TEXT))
        return TypeInfo(PAIR, name, "c", output, send, attributes=attributes)
    element, subtype = ELEMENTS.get(name, 0), RANGES.get(name, 0)
    return TypeInfo(99_000, name, "b", output, send, element_oid=element, range_oid=subtype)


CAPTURED = list(captured())


@pytest.mark.parametrize(
    ("name", "output", "send", "data", "text"),
    [pytest.param(*row, id=f"{row[0]}-{row[4].decode()}") for row in CAPTURED],
)
def test_a_captured_value_reads_as_it_was_printed(
    name: str, output: str, send: str, data: bytes, text: bytes
) -> None:
    assert conversion(type_info(name, output, send))(data) == text


# The rest of these is text, or bytes of any number.
ANY_LENGTH = {"text", "bytea"}


@pytest.mark.parametrize(
    ("name", "output", "send", "data"),
    [
        pytest.param(*row[:4], id=f"{row[0]}-{row[4].decode()}")
        for row in CAPTURED
        if row[0] not in ANY_LENGTH
    ],
)
def test_bytes_cut_off_or_left_over_are_a_fault(
    name: str, output: str, send: str, data: bytes
) -> None:
    to_text = conversion(type_info(name, output, send))
    faulty = [data + b"\0"] + [data[:length] for length in range(len(data))]
    if name == "jsonb":  # behind its version it is text
        faulty = [b"", b"\x02" + data[1:]]

    for piece in faulty:
        with pytest.raises(FAULTS):
            to_text(piece)


@pytest.mark.parametrize(
    ("output", "send", "data"),
    [
        ("boolout", "boolsend", "02"),
        ("time_out", "time_send", "000000141dd76001"),  # a microsecond after 24:00
        ("timetz_out", "timetz_send", "ffffffffffffffff00000000"),
        ("numeric_out", "numeric_send", "0000000012340000"),  # no such sign
        ("numeric_out", "numeric_send", "00010000000000002710"),  # a digit of 10000
        ("inet_out", "inet_send", "042000040a010203"),  # no such family
        ("varbit_out", "varbit_send", "ffffffff"),
        ("poly_out", "poly_send", "ffffffff"),
        ("tsqueryout", "tsquerysend", "0000000103"),  # no such item
        ("tsqueryout", "tsquerysend", "000000010209"),  # no such operator
        ("pg_snapshot_out", "pg_snapshot_send", "ffffffff" + "00" * 16),
    ],
)
def test_values_that_no_server_sends_are_a_fault(output: str, send: str, data: str) -> None:
    to_text = conversion(TypeInfo(99_000, "t", "b", output, send))

    with pytest.raises(FAULTS):
        to_text(bytes.fromhex(data))


@pytest.mark.parametrize(
    "data",
    [
        "00000007000000000000001700000000",  # seven dimensions
        "00000001000000000000001780000000" + "00000001",  # a negative size
        "0000000100000000000000177fffffff" + "00000001",  # elements that are not there
        "00000001000000000000001700000001" + "00000001" + "fffffffe",  # a length of -2
    ],
)
def test_an_array_that_no_server_sends_is_a_fault(data: str) -> None:
    to_text = conversion(
        TypeInfo(99_000, "integer[]", "b", "array_out", "array_send", element_oid=INT4)
    )

    with pytest.raises(FAULTS):
        to_text(bytes.fromhex(data))


def test_null_where_there_is_none_is_a_fault() -> None:
    a_range = conversion(TypeInfo(99_000, "r", "r", "range_out", "range_send", range_oid=INT4))
    multirange = conversion(
        TypeInfo(99_000, "m", "m", "multirange_out", "multirange_send", range_oid=INT4RANGE)
    )

    with pytest.raises(FAULTS):
        a_range(bytes.fromhex("02ffffffff00000004" + "00000001"))
    with pytest.raises(FAULTS):
        multirange(bytes.fromhex("00000001ffffffff"))


def test_a_type_that_is_sent_and_printed_as_text_is_text_whatever_its_name() -> None:
    citext = TypeInfo(99_000, "citext", "b", "textout", "textsend")

    assert conversion(citext)(b"Any Case") == b"Any Case"


def test_a_domain_reads_as_its_base_type() -> None:
    domain = replace(KNOWN[INT4], oid=99_000, name="positive", kind="d", base_oid=INT4)

    assert conversion(domain)(bytes.fromhex("00000007")) == b"7"


def array_of(oid: int) -> TypeInfo:
    return TypeInfo(99_000, "a", "b", "array_out", "array_send", element_oid=oid)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (KNOWN[MONEY], "values of type money .* lc_monetary"),
        (KNOWN[2205], "values of type regclass .* does not say exactly"),
        (KNOWN[1033], "values of type aclitem .* no binary format"),
        (array_of(MONEY), "values of type money"),
        (TypeInfo(99_000, "d", "d", "cash_out", "cash_send", base_oid=MONEY), "of type money"),
        (
            TypeInfo(
                99_000, "c", "c", "record_out", "record_send", attributes=(Attribute("a", MONEY),)
            ),
            "values of type money",
        ),
        (TypeInfo(99_000, "hstore", "b", "", ""), "values of type hstore"),
        (TypeInfo(99_000, "oddly sent text", "b", "textout", ""), "values of type oddly sent"),
    ],
)
def test_what_cannot_be_read_exactly_is_refused_with_the_way_out(
    info: TypeInfo, message: str
) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        conversion(info)

    assert caught.value.hint is not None
    assert "binary = false" in caught.value.hint
