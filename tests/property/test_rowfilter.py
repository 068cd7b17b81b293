"""The generated function against the interpreted one, and the laws of three-valued logic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.arrays import Array
from gateway.pgtypes.catalog import TYPES
from gateway.routing.row.native import why_not_built
from gateway.rowfilter import FilterEvaluationError, RowFilter, combine, condition_of
from gateway.rowfilter.evaluation.compile import reference
from gateway.rowfilter.expr import (
    And,
    AnyAll,
    Call,
    Case,
    Coalesce,
    ColumnRef,
    Constant,
    Distinct,
    Expr,
    IsNull,
    IsTrue,
    MinMax,
    Not,
    NullIf,
    Or,
    column_names,
)
from gateway.rowfilter.operators import OPERATIONS
from gateway.rowfilter.transform import Predicate
from tests.support.gateway.conditions import bind_compiled

INT4, BOOL, TEXT = TYPES["int4"][0], TYPES["bool"][0], TYPES["text"][0]
NAMES = ("a", "b", "t", "z")
Row = tuple[bytes | None, ...]
EXPRESSIONS = get_args(Expr)
EQUAL, LESS = OPERATIONS["int4eq"], OPERATIONS["int4lt"]
small = st.integers(-3, 3)
integer_columns: st.SearchStrategy[Expr] = st.sampled_from(
    [ColumnRef("a", INT4), ColumnRef("b", INT4)]
)
integer_leaves = integer_columns | st.builds(Constant, st.none() | small)


def calls(names: Sequence[str], *operands: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(
        Call,
        st.sampled_from([OPERATIONS[name] for name in names]),
        st.tuples(*operands),
    )


def tuples(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(inner, min_size=1, max_size=3).map(tuple)


def conditions(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.just(ColumnRef("z", BOOL)) | calls(("int4eq", "int4lt"), inner, inner)


integers: st.SearchStrategy[Expr] = st.recursive(
    integer_leaves,
    lambda inner: st.one_of(
        calls(("int4pl", "int4div", "int4mod"), inner, inner),
        calls(("int4um",), inner),
        st.builds(Case, tuples(st.tuples(conditions(inner), inner)), inner),
        st.builds(Coalesce, tuples(inner)),
        st.builds(NullIf, st.just(EQUAL), inner, inner),
        st.builds(MinMax, st.just(LESS), tuples(inner), st.booleans()),
    ),
    max_leaves=5,
)
texts: st.SearchStrategy[Expr] = st.just(ColumnRef("t", TEXT)) | st.builds(
    Constant, st.sampled_from([b"", b"a", b"ab", "é".encode()])
)
patterns: st.SearchStrategy[Expr] = st.builds(
    Constant, st.sampled_from([b"", b"%", b"a%", b"_", b"a\\"])
)


def array(items: list[Any]) -> Array:
    return Array(tuple(items))


int_lists = st.builds(Constant, st.lists(st.none() | small, max_size=3).map(array))
predicates: st.SearchStrategy[Expr] = st.one_of(
    st.just(ColumnRef("z", BOOL)),
    st.builds(Constant, st.sampled_from([True, False, None])),
    calls(("int4eq", "int4lt", "int4ne"), integers, integers),
    calls(("texteq", "textne"), texts, texts),
    calls(("textlike", "textnlike"), texts, patterns),
    st.builds(IsNull, integers | texts),
    st.builds(Distinct, st.just(OPERATIONS["int4eq"]), integers, integers),
    st.builds(
        AnyAll,
        st.just(OPERATIONS["int4eq"]),
        integers,
        int_lists,
        st.booleans(),
        st.just(True),
    ),
    st.builds(
        AnyAll, st.just(OPERATIONS["int4ne"]), integers, int_lists, st.booleans(), st.just(False)
    ),
    st.builds(
        AnyAll,
        st.just(OPERATIONS["texteq"]),
        texts,
        st.builds(
            Constant,
            st.lists(st.none() | st.just(b"a"), min_size=1).map(array),
        ),
        st.booleans(),
        st.just(True),
    ),
)


def is_integer(expr: Expr) -> bool:
    match expr:
        case Call(operation):
            return operation.infix not in ("==", "!=", "<") and "like" not in operation.name
        case Case(_, inner) | Coalesce((inner, *_)) | NullIf(_, inner):
            return is_integer(inner)
        case ColumnRef("a" | "b") | MinMax():
            return True
        case Constant(value):
            return type(value) is int
    return False


def folded(expr: Expr) -> Expr:
    """What the generator is given: an operation on constants alone was evaluated before.

    Its place is taken by a column of its type, so that every shape of tree stays possible.
    """
    if isinstance(expr, ColumnRef | Constant):
        return expr
    if not any(column_names(expr)):
        return ColumnRef("a", INT4) if is_integer(expr) else ColumnRef("z", BOOL)
    parts = {field.name: getattr(expr, field.name) for field in fields(expr)}
    changed = {name: _folded_part(part) for name, part in parts.items() if name != "array"}
    found: Expr = replace(expr, **changed)
    return found


def _folded_part(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(_folded_part(item) for item in part)
    return folded(part) if isinstance(part, EXPRESSIONS) else part


unfolded = st.recursive(
    predicates,
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Not, inner),
        st.builds(IsNull, inner),
        st.builds(IsTrue, inner, st.booleans()),
        st.builds(Distinct, st.just(OPERATIONS["booleq"]), inner, inner),
        st.builds(Case, tuples(st.tuples(inner, inner)), inner),
        st.builds(Coalesce, tuples(inner)),
        st.builds(NullIf, st.just(OPERATIONS["booleq"]), inner, inner),
    ),
    max_leaves=8,
)
filters = unfolded.map(folded)
constants: st.SearchStrategy[Expr] = st.builds(Constant, small)
text_constants: st.SearchStrategy[Expr] = st.builds(
    Constant, st.sampled_from([b"", b"a", b"ab", "é".encode()])
)


def any_value(items: Sequence[object]) -> bool:
    return any(item is not None for item in items)


ORDERS = ("int4eq", "int4ne", "int4lt", "int4le", "int4gt", "int4ge")
simple: st.SearchStrategy[Expr] = st.recursive(
    st.one_of(
        st.just(ColumnRef("z", BOOL)),
        calls(ORDERS, integer_columns, constants),
        calls(ORDERS, constants, integer_columns),
        calls(
            ("texteq", "textne", "text_lt", "text_ge"),
            st.just(ColumnRef("t", TEXT)),
            text_constants,
        ),
        st.builds(IsNull, integer_columns),
        st.builds(Distinct, st.just(EQUAL), integer_columns, constants),
        *(
            st.builds(
                AnyAll,
                st.just(OPERATIONS[name]),
                integer_columns,
                st.builds(Constant, st.lists(st.none() | small).filter(any_value).map(array)),
                st.just(is_any),
                st.just(is_any),
            )
            for name, is_any in (("int4eq", True), ("int4ne", False))
        ),
    ),
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Not, inner),
        st.builds(IsTrue, inner, st.booleans()),
    ),
    max_leaves=8,
)
rows: st.SearchStrategy[Row] = st.tuples(
    st.none() | small.map(lambda value: str(value).encode()),
    st.none() | small.map(lambda value: str(value).encode()),
    st.none() | st.sampled_from([b"", b"a", b"ab", "é".encode()]),
    st.sampled_from([None, b"t", b"f"]),
)
odd = st.sampled_from([None, b"0", b"1", b"0x10", b"", b"1.5", b"-"])
unreadable: st.SearchStrategy[Row] = st.tuples(
    odd, odd, st.sampled_from([None, b"", b"a"]), st.sampled_from([None, b"t", b"f", b"true"])
)


def bound(expr: Expr) -> Predicate:
    return RowFilter("", expr, frozenset(column_names(expr)), None).bind(NAMES)


def outcome(function: Predicate, row: Row) -> bool | str:
    try:
        return function(row)
    except FilterEvaluationError as error:
        return error.reason


@given(filters, rows)
def test_the_generated_function_equals_the_interpreted_one(expr: Expr, row: Row) -> None:
    assert outcome(bound(expr), row) == outcome(reference(expr, NAMES), row)


if why_not_built() is None:

    @given(filters | simple, rows)
    def test_a_condition_equals_the_interpreted_filter(expr: Expr, row: Row) -> None:
        for each in (expr, Not(expr)):
            row_filter = RowFilter("", each, frozenset(column_names(each)), None)
            decide = bind_compiled([row_filter], NAMES)
            if decide is not None:
                assert decide(row) is outcome(reference(each, NAMES), row)

    @given(simple, unreadable)
    def test_a_text_that_the_function_refuses_is_left_to_it(expr: Expr, row: Row) -> None:
        for each in (expr, Not(expr)):
            row_filter = RowFilter("", each, frozenset(column_names(each)), None)
            decide = bind_compiled([row_filter], NAMES)
            assert decide is not None
            try:
                passes = bound(each)(row)
            except ValueFormatError:
                passes = None
            assert decide(row) in (None, passes)

    @given(simple)
    def test_comparisons_with_constants_and_what_joins_them_are_conditions(expr: Expr) -> None:
        row_filter = RowFilter("", expr, frozenset(column_names(expr)), None)

        assert condition_of([row_filter], NAMES) is not None


@given(filters, rows)
def test_a_filter_is_true_or_false_or_unknown_and_never_two_of_them(expr: Expr, row: Row) -> None:
    found = [outcome(bound(e), row) for e in (expr, Not(expr), IsNull(expr))]

    assert found.count(True) == 1 or (len(set(found)) == 1 and isinstance(found[0], str))


@given(filters, filters, rows)
def test_de_morgan(first: Expr, second: Expr, row: Row) -> None:
    conjunction = outcome(bound(Not(And((first, second)))), row)

    assert conjunction == outcome(bound(Or((Not(first), Not(second)))), row)


@given(filters, rows)
def test_not_not_is_nothing(expr: Expr, row: Row) -> None:
    assert outcome(bound(Not(Not(expr))), row) == outcome(bound(expr), row)


@given(st.lists(filters, max_size=4), rows)
def test_filters_combine_as_or(exprs: list[Expr], row: Row) -> None:
    prepared = [RowFilter("", e, frozenset(column_names(e)), None) for e in exprs]
    combined = outcome(combine(prepared, NAMES), row)

    expected: bool | str = not exprs or Constant(True) in exprs
    for filter_ in prepared if not expected else []:
        expected = outcome(filter_.bind(NAMES), row)
        if expected is not False:
            break
    assert combined == expected


@given(filters, rows, st.permutations(NAMES))
def test_the_layout_of_the_tuples_does_not_matter(expr: Expr, row: Row, names: list[str]) -> None:
    moved = tuple(row[NAMES.index(name)] for name in names)
    function = RowFilter("", expr, frozenset(column_names(expr)), None).bind(names)

    assert outcome(function, moved) == outcome(bound(expr), row)
