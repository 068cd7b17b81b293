"""The generated encoders against the slow reference, and fastavro reading back; names inverted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.names import (
    avro_name,
)
from gateway.definitions.model import Element
from gateway.envelope.canonical import compile_canonical_key
from gateway.envelope.encoding.encoders import compile_key_encoder, compile_row_encoder
from gateway.envelope.schema import TableSchema, describe
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from tests.unit.envelope.columns import NATIVE, EnvelopeColumn
from tests.unit.envelope.names import identifier_of
from tests.unit.envelope.reference import encode_key_slowly, encode_row_slowly

Case = tuple[int, int, object, bytes]
"""type OID, type modifier, what fastavro has to read, the text PostgreSQL would print."""

utf8 = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)


def _case(oid: int, value: object, text: str, modifier: int = -1) -> Case:
    return oid, modifier, value, text.encode()


def _decimal_text(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    body = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{body}" if unscaled < 0 else body


@st.composite
def decimals(draw: st.DrawFn) -> Case:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    unscaled = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    value = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    return _case(1700, value, _decimal_text(unscaled, scale), (precision << 16 | scale) + 4)


def _timestamp_text(value: datetime) -> str:
    text = value.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    return text + (f".{value.microsecond:06d}".rstrip("0") if value.microsecond else "")


ARRAY_OIDS = {16: 1000, 23: 1007, 1700: 1231, 25: 1009, 1083: 1183, 1186: 1187}


PLAIN = re.compile(rb'[^"\\{},\s]+')


def _printed(text: bytes, quoted: bool) -> bytes:
    """An item as array_out prints it; or `quoted` without need, which PostgreSQL reads as well."""
    if not quoted and PLAIN.fullmatch(text) and text.upper() != b"NULL":
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


@st.composite
def arrays(draw: st.DrawFn) -> Case:
    items = draw(
        st.one_of(
            *(
                st.lists(one, max_size=20)
                for one in (times, texts, decimals(), integers, intervals())
            )
        )
    )
    oid, modifier = (items[0][0], items[0][1]) if items else (23, -1)
    items = [item for item in items if item[:2] == (oid, modifier)]
    gone = draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items)))
    quoted = draw(st.booleans())
    shown = [b"NULL" if no else _printed(i[3], quoted) for no, i in zip(gone, items, strict=True)]
    values = [None if no else i[2] for no, i in zip(gone, items, strict=True)]
    return ARRAY_OIDS[oid], modifier, values, b"{" + b",".join(shown) + b"}"


@st.composite
def intervals(draw: st.DrawFn) -> Case:
    """An interval as EncodeInterval prints it, part by part."""
    months, days = (
        draw(st.integers(-(2**31) + 1, 2**31 - 2)),
        draw(st.integers(-(2**31), 2**31 - 1)),
    )
    usecs = draw(st.integers(-(2**63), 2**63 - 1))
    shown: list[str] = []
    before = 0
    years = abs(months) // 12 * (1 if months > 0 else -1)
    for number, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if number:
            sign = "+" if before < 0 < number else ""
            shown.append(f"{sign}{number} {unit}{'' if number == 1 else 's'}")
            before = number
    if usecs or not shown:
        sign = "-" if usecs < 0 else "+" if before < 0 else ""
        seconds, fraction = divmod(abs(usecs), 1_000_000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        shown.append(sign + clock + (f".{fraction:06}".rstrip("0") if fraction else ""))
    value = {"months": months, "days": days, "microseconds": usecs}
    return _case(1186, value, " ".join(shown))


@st.composite
def ranges(draw: st.DrawFn) -> Case:
    oid, bound = draw(st.sampled_from([(3904, integers), (3908, timestamps), (3912, dates)]))
    lower, upper = (draw(st.none() | bound) for _ in range(2))
    begins, ends, empty = (draw(st.booleans()) for _ in range(3))
    if empty:
        return _case(oid, _range_of(None, None, False, False, True), "empty")
    shown = b",".join(b"" if one is None else _printed(one[3], False) for one in (lower, upper))
    text = b"[("[not begins :][:1] + shown + b"])"[not ends :][:1]
    bounds = (None if one is None else one[2] for one in (lower, upper))
    return oid, -1, _range_of(*bounds, begins, ends, False), text


@st.composite
def multiranges(draw: st.DrawFn) -> Case:
    """Ranges of one type in any order; a server has them in order, and none that is empty."""
    one = draw(ranges())
    more = [one, *draw(st.lists(ranges(), max_size=9))]
    same = [other for other in more if other[0] == one[0] and other[3] != b"empty"]
    text = b"{" + b",".join(other[3] for other in same) + b"}"
    return MULTIRANGES[one[0]], -1, [other[2] for other in same], text


def _hstore_text(pairs: dict[str, str | None]) -> str:
    """Return the text of an hstore, whose order of keys is none that readers rely on."""
    texts = (["NULL" if p is None else _printed(p.encode(), True).decode() for p in pair]
             for pair in pairs.items())  # fmt: skip
    return ", ".join("=>".join(pair) for pair in texts)


@st.composite
def vectors(draw: st.DrawFn) -> Case:
    values = draw(st.lists(reals, max_size=9))
    if draw(st.booleans()):
        values = values or [0.5]
        return _case(VECTOR, values, f"[{','.join(map(repr, values))}]")
    indices = sorted(draw(st.sets(st.integers(1, 99), min_size=len(values), max_size=len(values))))
    pairs = (f"{index}:{value!r}" for index, value in zip(indices, values, strict=True))
    parts = {"dimensions": 99, "indices": indices, "values": values}
    return _case(SPARSEVEC, parts, f"{{{','.join(pairs)}}}/99")


def _range_of(*parts: object) -> dict[str, object]:
    names = ("lower", "upper", "lower_inclusive", "upper_inclusive", "empty")
    return dict(zip(names, parts, strict=True))


sent_or_not: list[ColumnValue] = [b"sent", b"sent", None, UNCHANGED]

integers = st.integers(-(2**31), 2**31 - 1).map(lambda v: _case(23, v, str(v)))
texts = utf8.map(lambda v: _case(25, v, v))
reals = st.floats(width=32, allow_nan=False, allow_infinity=False)
dates = st.dates().map(lambda v: _case(1082, v, v.isoformat()))
timestamps = st.datetimes().map(lambda v: _case(1114, v, _timestamp_text(v)))
times = st.times().map(lambda v: _case(1083, v, v.isoformat()))

cases = st.one_of(
    st.deferred(arrays),
    st.deferred(ranges),
    st.deferred(multiranges),
    st.deferred(vectors),
    st.dictionaries(utf8, st.none() | utf8, max_size=9).map(
        lambda v: _case(HSTORE, v, _hstore_text(v))
    ),
    intervals(),
    times,
    st.booleans().map(lambda v: _case(16, v, "t" if v else "f")),
    integers,
    st.integers(-(2**63), 2**63 - 1).map(lambda v: _case(20, v, str(v))),
    st.floats(allow_nan=False).map(
        lambda v: _case(701, v, repr(v).replace("inf", "Infinity")),
    ),
    reals.map(lambda v: _case(700, v, repr(v))),
    decimals(),
    st.binary(max_size=300).map(lambda v: _case(17, v, "\\x" + v.hex())),
    st.binary(max_size=300).map(lambda v: _case(GEOMETRY, v, v.hex().upper())),
    dates,
    timestamps,
    st.datetimes().map(
        lambda v: _case(1184, v.replace(tzinfo=UTC), _timestamp_text(v) + "+00"),
    ),
    st.uuids().map(lambda v: _case(2950, v, str(v))),
    texts,
)
# A range of dates that fastavro gives back as datetime.date; others are in tests/oracle.
assert date.min.year == 1


ITEM_OIDS = {array: item for item, array in ARRAY_OIDS.items()}
HSTORE: int = 65_000
VECTOR: int = 65_001
SPARSEVEC: int = 65_002
GEOMETRY: int = 65_003
EXTENSIONS = (HSTORE, VECTOR, SPARSEVEC)


NAMES = dict(zip(EXTENSIONS, ("hstore", "public.vector(3)", "sparsevec"), strict=True))
NAMES[GEOMETRY] = "public.geometry(Point,4326)"
MULTIRANGES = {3904: 4451, 3908: 4533, 3912: 4535}
NESTED_OIDS = {*ITEM_OIDS, 1186, *MULTIRANGES, *MULTIRANGES.values(), *EXTENSIONS}
"""Types that are text in a key."""


def _columns(drawn: Sequence[Case]) -> list[EnvelopeColumn]:
    return [
        EnvelopeColumn(
            *(f"c{n}", oid, modifier, NAMES.get(oid, "a type"), oid, modifier, "b"),
            element=Element(ITEM_OIDS[oid], modifier, "a type", "b") if oid in ITEM_OIDS else None,
        )
        for n, (oid, modifier, _, _) in enumerate(drawn)
    ]


def _read(schema: dict[str, Any], data: bytes) -> Any:
    source = BytesIO(data)
    datum = fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None)
    assert source.read() == b""
    return datum


def _value_record(schema: TableSchema) -> dict[str, Any]:
    record = schema.value_schema["fields"][0]["type"][1]
    return {**record, "namespace": schema.value_schema["namespace"]}


@given(st.data(), st.lists(cases, min_size=1, max_size=8))
def test_a_row_is_encoded_as_the_reference_does_and_read_back(
    data: st.DataObject, drawn: list[Case]
) -> None:
    indexes = data.draw(st.permutations(range(len(drawn))))
    absent = data.draw(
        st.lists(
            st.sampled_from(sent_or_not),
            min_size=len(drawn),
            max_size=len(drawn),
        )
    )
    schema = describe("public", "t", _columns(drawn), types=NATIVE)
    row: list[ColumnValue] = [None] * len(drawn)
    for index, (_, _, _, text), gone in zip(indexes, drawn, absent, strict=True):
        row[index] = text if isinstance(gone, bytes) else gone

    encoded = compile_row_encoder(schema, indexes)(row)

    assert encoded == encode_row_slowly(schema, indexes, row)
    assert _read(_value_record(schema), encoded) == {
        f"c{n}": value if isinstance(gone, bytes) else None
        for n, ((_, _, value, _), gone) in enumerate(zip(drawn, absent, strict=True))
    }


@given(st.lists(cases, min_size=1, max_size=4))
def test_a_key_is_encoded_as_the_reference_does_and_read_back(drawn: list[Case]) -> None:
    columns = _columns(drawn)
    key = tuple(column.name for column in columns)
    schema = describe("public", "t", columns, key, types=NATIVE)
    indexes = range(len(drawn))
    row = [text for _, _, _, text in drawn]

    encoded = compile_key_encoder(schema, indexes)(row)

    assert encoded == encode_key_slowly(schema, indexes, row)
    assert schema.key_schema is not None
    assert _read(schema.key_schema, encoded) == {
        f"c{n}": text.decode() if oid in NESTED_OIDS else value
        for n, (oid, _, value, text) in enumerate(drawn)
    }


@given(st.lists(utf8, min_size=2, max_size=2), st.lists(utf8, min_size=2, max_size=2))
def test_keys_of_text_have_one_form_exactly_when_they_are_equal(
    one: list[str], other: list[str]
) -> None:
    columns = [EnvelopeColumn(name, 25, -1, "text", 25, -1, "b") for name in ("a", "b")]
    canonical = compile_canonical_key(describe("public", "t", columns, ("a", "b")), [0, 1])

    forms = [canonical([text.encode() for text in row]) for row in (one, other)]

    assert (forms[0] == forms[1]) is (one == other)


awkward = st.text(st.sampled_from("_x-.0FE9aé€\U0001f600 "), min_size=1, max_size=20)


@given(st.one_of(awkward, utf8.filter(bool)))
def test_an_avro_name_is_one_and_gives_the_identifier_back(identifier: str) -> None:
    name = avro_name(identifier)

    assert name[0].isascii()
    assert not name[0].isdigit()
    assert all(
        character.isascii() and (character.isalnum() or character == "_") for character in name
    )
    assert identifier_of(name) == identifier
