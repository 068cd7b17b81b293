"""What a look-up may rely on: rows outside a selection never pass, and never raise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.definitions.model import Collation, Column
from gateway.rowfilter import Selection, combine, compile_filter, selection_of

C = Collation('pg_catalog."C"', True, True)
COLUMNS = (
    Column("a", 1, 23, -1, "integer", 23, -1, "b", True, "", None),
    Column("region", 2, 25, -1, "text", 25, -1, "b", False, "", C),
    Column("n", 3, 1700, -1, "numeric", 1700, -1, "b", False, "", None),
    Column("code", 4, 1042, 7, "character(3)", 1042, 7, "b", False, "", C),
    Column("blank", 5, 1042, -1, "bpchar", 1042, -1, "b", False, "", C),
    Column("day", 6, 1082, -1, "date", 1082, -1, "b", False, "", None),
    Column("u", 7, 2950, -1, "uuid", 2950, -1, "b", False, "", None),
)
NAMES = ("a", "region", "n", "code", "blank", "day", "u")
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


def select(*filters: str) -> Selection | None:
    return selection_of([compile_filter(text, COLUMNS) for text in filters])


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["(region = 'EU'::text)"], Selection("region", frozenset({b"EU"}))),
        (["('EU'::text = region)"], Selection("region", frozenset({b"EU"}))),
        (["(a = 5)"], Selection("a", frozenset({b"5"}))),
        (["(a = '-5'::integer)"], Selection("a", frozenset({b"-5"}))),
        (["(code = 'é'::bpchar)"], Selection("code", frozenset({"é  ".encode()}))),
        (
            ["(code = ANY (ARRAY['a  '::bpchar, 'bcd'::bpchar, 'bcde'::bpchar]))"],
            Selection("code", frozenset({b"a  ", b"bcd"})),
        ),
        (["(day = '2024-02-29'::date)"], Selection("day", frozenset({b"2024-02-29"}))),
        (["(day = 'infinity'::date)"], Selection("day", frozenset({b"infinity"}))),
        ([f"(u = '{UUID}'::uuid)"], Selection("u", frozenset({UUID.encode()}))),
        (["(a = ANY (ARRAY[1, 2]))"], Selection("a", frozenset({b"1", b"2"}))),
        (
            ["((a > 5) AND (region = 'EU'::text))"],
            Selection("region", frozenset({b"EU"})),
        ),
        (
            ["((region = 'EU'::text) AND (a = ANY (ARRAY[1, 2])))"],
            Selection("region", frozenset({b"EU"})),
        ),
        (
            ["((region = 'EU'::text) OR (region = 'US'::text))"],
            Selection("region", frozenset({b"EU", b"US"})),
        ),
        (
            ["(region = 'EU'::text)", "(region = 'US'::text)"],
            Selection("region", frozenset({b"EU", b"US"})),
        ),
    ],
)
def test_equality_and_in_select_by_the_columns_text(
    filters: Sequence[str], expected: Selection
) -> None:
    assert select(*filters) == expected


@pytest.mark.parametrize(
    "filters",
    [
        pytest.param([], id="no filter"),
        pytest.param(["(a > 5)"], id="another operator"),
        pytest.param(["(n = 1.0)"], id="a type with several texts for a value"),
        pytest.param(["((region = 'EU'::text) OR (a = 5))"], id="OR over two columns"),
        pytest.param(["(region = 'EU'::text)", "(a > 5)"], id="a second filter without one"),
        pytest.param(["(NOT (region = 'EU'::text))"], id="negated"),
        pytest.param(["(((10 / a) > 5) AND (region = 'EU'::text))"], id="an error comes first"),
        pytest.param(["(region IS NULL)"], id="IS NULL"),
        pytest.param(["(blank = 'x'::bpchar)"], id="char of any length"),
        pytest.param(
            ["(day = '2024-02-29 00:00:00'::timestamp without time zone)"], id="another type"
        ),
        pytest.param(["(abs(a) = 5)"], id="a function of a column"),
        pytest.param(["COALESCE((a = 5), true)"], id="NULL passes"),
        pytest.param(["(NOT (region IS DISTINCT FROM 'EU'::text))"], id="IS NOT DISTINCT FROM"),
    ],
)
def test_what_a_text_does_not_decide_is_not_selected(filters: Sequence[str]) -> None:
    assert select(*filters) is None


def test_an_operand_that_may_raise_behind_the_equality_does_no_harm() -> None:
    assert select("((region = 'EU'::text) AND ((10 / a) > 5))") == Selection(
        "region", frozenset({b"EU"}), null_too=True
    )


FILTERS = [
    "(region = 'EU'::text)",
    "((a > 5) AND (region = 'EU'::text))",
    "((region = 'EU'::text) OR (region = 'US'::text))",
    "((region = 'EU'::text) AND ((10 / a) > 5))",
    "(a = ANY (ARRAY[0, 1, 2]))",
]


@given(
    st.lists(st.sampled_from(FILTERS), min_size=1, max_size=3),
    st.integers(-1, 7),
    st.sampled_from([None, b"EU", b"US", b"eu", b"EU ", b""]),
)
def test_a_row_outside_the_selection_neither_passes_nor_raises(
    filters: list[str], a: int, region: bytes | None
) -> None:
    compiled = [compile_filter(text, COLUMNS) for text in filters]
    selection = selection_of(compiled)
    row = (b"%d" % a, region, *(None,) * 5)

    if selection is None:
        return
    value = row[NAMES.index(selection.column)]
    if value not in selection.texts and not (value is None and selection.null_too):
        assert combine(compiled, NAMES)(row) is False
