from __future__ import annotations

import pytest

from gateway.core.errors import FilterError, ValueFormatError
from gateway.pgoutput.messages import UNCHANGED
from gateway.rowfilter import (
    FilterEvaluationError,
    FilterSource,
    RowFilter,
    combine,
    compile_filter,
)
from gateway.rowfilter.evaluation.compile import reference
from gateway.rowfilter.expr import And, Constant, Or
from tests.unit.rowfilter.columns import COLUMNS, NAMES, row


def passes(text: str, **values: bytes | None) -> bool:
    """What the generated function says; the interpreted one must say the same."""
    filter_ = compile_filter(text, COLUMNS)
    generated = filter_.bind(NAMES)(row(**values))
    assert reference(filter_.expr, NAMES)(row(**values)) is generated
    return generated


def failure(text: str, **values: bytes | None) -> str:
    """The reason of the evaluation error, the same for both forms."""
    filter_ = compile_filter(text, COLUMNS)
    reasons = []
    for function in (filter_.bind(NAMES), reference(filter_.expr, NAMES)):
        with pytest.raises(FilterEvaluationError) as caught:
            function(row(**values))
        reasons.append(caught.value.reason)
    assert reasons[0] == reasons[1]
    return reasons[0]


@pytest.mark.parametrize(
    ("a", "c", "expected"),
    [
        (b"2", b"NSW", False),
        (b"5", b"ACT", False),
        (b"6", b"NSW", True),
        (b"8", b"QLD", False),
        (b"9", b"NSW", True),
        (None, b"NSW", False),
        (b"9", None, False),
    ],
)
def test_the_manuals_filter_p1(a: bytes | None, c: bytes | None, expected: bool) -> None:
    assert passes("((a > 5) AND (c = 'NSW'::text))", a=a, c=c) is expected


@pytest.mark.parametrize("text", ["(z AND (a = 1))", "(NOT ((NOT z) OR (a <> 1)))"])
@pytest.mark.parametrize(
    ("z", "a", "expected"),
    [(b"t", b"1", True), (b"t", None, False), (None, b"1", False), (b"f", None, False)],
)
def test_and_and_or_know_three_truth_values(
    text: str, z: bytes | None, a: bytes | None, expected: bool
) -> None:
    assert passes(text, z=z, a=a) is expected


@pytest.mark.parametrize(
    ("test", "of_true", "of_false", "of_null"),
    [
        ("IS TRUE", True, False, False),
        ("IS NOT TRUE", False, True, True),
        ("IS FALSE", False, True, False),
        ("IS NOT FALSE", True, False, True),
        ("IS UNKNOWN", False, False, True),
        ("IS NOT UNKNOWN", True, True, False),
        ("IS NULL", False, False, True),
        ("IS NOT NULL", True, True, False),
    ],
)
def test_tests_of_a_truth_value(test: str, of_true: bool, of_false: bool, of_null: bool) -> None:
    text = f"((a > 5) {test})"

    assert passes(text, a=b"6") is of_true
    assert passes(text, a=b"5") is of_false
    assert passes(text, a=None) is of_null


def test_distinct_treats_null_as_a_value() -> None:
    text = "(a IS DISTINCT FROM b)"

    assert passes(text, a=b"1", b=b"2")
    assert passes(text, a=b"1", b=None)
    assert not passes(text, a=None, b=None)
    assert not passes(f"(NOT {text})", a=b"1", b=b"2")


@pytest.mark.parametrize(
    ("text", "of_1", "of_3", "of_null"),
    [
        ("(a = ANY (ARRAY[1, 2]))", True, False, False),
        ("(a = ANY ('{1,2}'::integer[]))", True, False, False),
        ("(a = ANY (ARRAY[1, NULL::integer]))", True, False, False),
        ("(a <> ALL (ARRAY[1, 2]))", False, True, False),
        ("(a <> ALL (ARRAY[1, NULL::integer]))", False, False, False),
        ("(NOT (a <> ALL (ARRAY[1, NULL::integer])))", True, False, False),
        ("(NOT (a = ANY (ARRAY[1, 2])))", False, True, False),
        ("(NOT (a = ANY (ARRAY[1, NULL::integer])))", False, False, False),
        ("((a = ANY (ARRAY[1, NULL::integer])) IS UNKNOWN)", False, True, True),
        ("(a <> ALL ('{}'::integer[]))", True, True, True),
        ("(a = ANY ('{}'::integer[]))", False, False, False),
        ("((a = ANY (NULL::integer[])) IS NULL)", True, True, True),
        ("(a < ALL (ARRAY[2, 3]))", True, False, False),
    ],
)
def test_lists(text: str, of_1: bool, of_3: bool, of_null: bool) -> None:
    assert passes(text, a=b"1") is of_1
    assert passes(text, a=b"3") is of_3
    assert passes(text, a=None) is of_null


def test_trailing_blanks_do_not_count_in_char_but_do_in_like() -> None:
    assert passes("(p = 'x'::bpchar)", p=b"x    ")
    assert passes("(p = ANY (ARRAY['x '::bpchar, 'y'::bpchar]))", p=b"x    ")
    assert not passes("(p ~~ 'x'::text)", p=b"x    ")
    assert passes("((p)::text ~~ 'x'::text)", p=b"x    ")


def test_nan_is_the_greatest_number() -> None:
    assert passes("(n > 'Infinity'::numeric)", n=b"NaN")
    assert passes("(n = 'NaN'::numeric)", n=b"NaN")
    assert passes("(f >= 'NaN'::double precision)", f=b"NaN")
    assert passes("(f = ANY (ARRAY['-0'::double precision, 'NaN'::double precision]))", f=b"0")


def test_numbers_of_different_types_are_compared_exactly() -> None:
    assert passes("((a)::numeric > 5.5)", a=b"6")
    assert not passes("((a)::double precision > (5.5)::double precision)", a=b"5")
    assert passes("(n = 1.00)", n=b"1.0")


def test_dates_compare_with_timestamps_and_literals() -> None:
    assert passes("(d > '2024-01-01'::date)", d=b"infinity")
    assert passes("(d = '2024-01-01 00:00:00'::timestamp without time zone)", d=b"2024-01-01")
    assert passes(
        "(tz >= '2023-12-31 22:00:00+00'::timestamp with time zone)", tz=b"2024-01-01 00:00:00+02"
    )


def test_a_column_name_that_needs_quotes() -> None:
    assert passes('("Été" = 5)', **{"Été": b"5"})


@pytest.mark.parametrize(
    ("text", "a", "reason"),
    [
        ("((10 / a) = 1)", b"0", "division by zero"),
        ("((a + 1) > 0)", b"2147483647", "integer out of range"),
        ("((- a) > 0)", b"-2147483648", "integer out of range"),
        ("((b > 5) AND ((10 / a) = 1))", b"0", "division by zero"),
        ("((b + (10 / a)) = 1)", b"0", "division by zero"),
        ("(((10 / a) = 1) IS NULL)", b"0", "division by zero"),
        ("((10 / a) = ANY (ARRAY[1, 2]))", b"0", "division by zero"),
        ("((10 / a) IS DISTINCT FROM b)", b"0", "division by zero"),
    ],
)
def test_an_error_is_raised_where_postgresql_raises_it(text: str, a: bytes, reason: str) -> None:
    assert failure(text, a=a, b=None) == reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("((a <> 0) AND ((10 / a) = 1))", False),
        ("((a = 0) OR ((10 / a) = 1))", True),
        ("(((10 / a) = 1) AND false)", False),
        ("(((10 / a) = 1) OR true)", True),
        ("(((10 / a) + NULL::integer) IS NULL)", True),
        ("(false AND ((1 / 0) = 1))", False),
    ],
)
def test_an_error_is_not_raised_where_postgresql_does_not_get(text: str, expected: bool) -> None:
    assert passes(text, a=b"0") is expected


def test_a_constant_part_that_fails_is_refused_because_it_fails_for_every_row() -> None:
    with pytest.raises(FilterError, match="division by zero") as caught:
        compile_filter("((a > 5) AND ((1 / 0) = 1))", COLUMNS)

    assert caught.value.position == 17


def test_the_evaluation_error_names_the_filter_and_no_value() -> None:
    source = FilterSource("public.orders", "p1")
    function = compile_filter("((10 / (a - 77)) = 1)", COLUMNS, source=source).bind(NAMES)

    with pytest.raises(FilterEvaluationError) as caught:
        function(row(a=b"77"))

    assert "row filter of publication p1 for public.orders: division by zero" in str(caught.value)
    assert "77" not in str(caught.value)


def test_columns_are_those_that_are_read() -> None:
    assert compile_filter("((a > 5) AND (c = 'x'::text))", COLUMNS).columns == {"a", "c"}
    assert compile_filter("true", COLUMNS).columns == frozenset()


def test_constants_are_folded() -> None:
    assert compile_filter("((1 + 1) = 2)", COLUMNS).expr == Constant(True)
    assert compile_filter("((a > 5) AND NULL::boolean AND false)", COLUMNS).expr == Constant(False)


def test_a_filter_binds_to_tuples_of_another_layout() -> None:
    function = compile_filter("((a > 5) AND (c = 'x'::text))", COLUMNS).bind(["c", "other", "a"])

    assert function((b"x", b"?", b"6"))
    assert not function((b"6", b"?", b"5"))


def test_a_column_that_the_tuples_do_not_have_is_refused() -> None:
    with pytest.raises(FilterError, match='column "a" is not in the relation'):
        compile_filter("(a > 5)", COLUMNS).bind(["b"])


def test_only_the_columns_that_are_read_are_looked_at() -> None:
    assert passes("(a > 5)", a=b"6", n=b"no number", tz=b"no time")


def test_filters_of_several_publications_are_or_ed() -> None:
    filters = [compile_filter(text, COLUMNS) for text in ("(a = 1)", "(b = 2)", "(a = 3)")]
    function = combine(filters, NAMES)

    assert function(row(a=b"1"))
    assert function(row(b=b"2"))
    assert function(row(a=b"3"))
    assert not function(row(a=b"2"))
    assert not function(row())


def test_without_a_filter_every_row_passes() -> None:
    assert combine([], NAMES)(row())


def test_a_filter_that_is_true_lets_every_row_pass_whatever_the_others_do() -> None:
    filters = [compile_filter(text, COLUMNS) for text in ("((1 / a) = 1)", "true")]

    assert combine(filters, NAMES)(row(a=b"0"))


@pytest.mark.parametrize(
    "text",
    [
        "(c = 'x'::text)",
        "(c = ANY (ARRAY['x'::text, 'y'::text]))",
        "(c ~~ 'x%'::text)",
        "(c <> 'x'::text)",
        "((c = 'x'::text) OR (c = 'y'::text))",
        "(n > 5.0)",
        "(p = 'x'::bpchar)",
    ],
)
def test_an_unchanged_toast_value_that_is_needed_raises(text: str) -> None:
    function = compile_filter(text, COLUMNS).bind(NAMES)

    with pytest.raises(ValueFormatError, match="unchanged TOAST"):
        function(tuple(UNCHANGED for _ in NAMES))


def test_an_unchanged_toast_value_is_known_not_to_be_null() -> None:
    function = compile_filter("(c IS NOT NULL)", COLUMNS).bind(NAMES)

    assert function(tuple(UNCHANGED for _ in NAMES))


def test_a_value_that_is_not_of_its_type_raises_and_is_not_shown() -> None:
    function = compile_filter("(a > 5)", COLUMNS).bind(NAMES)

    with pytest.raises(ValueFormatError) as caught:
        function(row(a=b"secret"))

    assert "secret" not in str(caught.value)


def test_a_filter_too_deep_for_pythons_parser_is_interpreted() -> None:
    expr = compile_filter("(a > 0)", COLUMNS).expr
    for _ in range(150):
        expr = Or((And((expr, Constant(True))), Constant(False)))

    function = RowFilter("", expr, frozenset({"a"}), None).bind(NAMES)

    assert function(row(a=b"1"))
    assert not function(row(a=None))


def test_a_long_list_of_alternatives_works() -> None:
    text = " OR ".join(f"(a = {number})" for number in range(2000))

    assert passes(f"({text})", a=b"1999")
