"""Conversion of a filter as written into a formula; what cannot be followed is refused. Pure.

    x IN (SELECT i FROM t WHERE f)                  (x) against the i of t where f
    x = ANY (...), x <> ALL (...)                   the same as IN and NOT IN
    EXISTS (SELECT FROM t WHERE t.i = o.x AND f)    (x) against the i of t where f
    (x, y) IN (SELECT i, j FROM t)                  (x, y) against the (i, j) of t
    x IN (SELECT i FROM t WHERE t.j = o.y)          (x, y) against the (i, j) of t

`f` is a filter again, with sub-selects of its own. Plain parts become texts on bare column names,
for the server to resolve: as PostgreSQL's deparser writes them, and read back for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, NoReturn

import postgast
from postgast import pg_query_pb2 as pb

from gateway.core.errors import FilterError
from gateway.definitions.model import Table
from gateway.definitions.sql.grammar import parse
from gateway.definitions.sql.source import strip_locations
from gateway.rowfilter.parse import unwrap
from gateway.subselects.formula import (
    AllOf,
    AnyOf,
    Formula,
    Plain,
    SetTest,
    SetTestKind,
    Subselect,
)
from gateway.subselects.text.equality import why_not_equal
from gateway.subselects.text.scope import (
    Column,
    InnerTable,
    NameFault,
    Scope,
    TableLookup,
    find_column,
)
from gateway.subselects.text.select_form import (
    equality_of,
    refuse_select,
    select_faults,
)

__all__ = ["has_subselect", "normalise"]

_PREFIX: Final = "SELECT WHERE ("
_DEEPEST: Final = 3
_NAME_FAULTS: Final = {
    NameFault.UNKNOWN: "no table here has this column",
    NameFault.WHOLE_ROW: "a whole row is not followed",
    NameFault.SYSTEM: "a system column is not in the stream",
}


def has_subselect(where: str) -> bool:
    """Whether a filter, as written, has a sub-select; one that does not parse has none."""
    try:
        return _has_subselect(parse(f"{_PREFIX}{where}\n)"))
    except postgast.PgQueryError:
        return False


def normalise(
    where: str, table: Table, lookup: TableLookup, *, text: str | None = None, offset: int = 0
) -> Formula:
    """Return the formula of a filter on `table`.

    Args:
        where: Filter as written.
        table: The table that it filters.
        lookup: Finds the tables of its sub-selects.
        text: Text of the definitions, for errors; None if the filter stands alone.
        offset: Character offset of the filter in `text`.

    Raises:
        FilterError: it cannot be followed exactly; with the reason and the position.
    """
    return _Normaliser(where, lookup, where if text is None else text, offset).filter_on(table)


def _has_subselect(node: Any) -> bool:
    return next(iter(postgast.find_nodes(node, pb.SubLink)), None) is not None


class _Normaliser:
    def __init__(self, where: str, lookup: TableLookup, text: str, offset: int) -> None:
        self._where = where
        self._lookup = lookup
        self._text = text
        self._offset = offset

    def filter_on(self, table: Table) -> Formula:
        try:
            tree = parse(f"{_PREFIX}{self._where}\n)")
        except postgast.PgQueryError as error:
            raise FilterError(error.message, text=self._text, position=self._offset) from None
        expression = tree.stmts[0].stmt.select_stmt.where_clause
        return self._formula(expression, Scope(table, table.name), wanted=True, depth=0)

    def _formula(self, node: Any, scope: Scope, *, wanted: bool, depth: int) -> Formula:
        """Return what is true where the expression `node` is true, or false if not `wanted`."""
        if not _has_subselect(node):
            return self._plain([node], scope, wanted=wanted)
        kind, found = unwrap(node)
        if kind == "sub_link":
            return self._test(found, scope, wanted=wanted, depth=depth)
        if kind != "bool_expr":
            first = next(iter(postgast.find_nodes(node, pb.SubLink)))
            self._refuse(first, "a sub-select can be an operand of AND, OR and NOT only")
        if found.boolop == pb.NOT_EXPR:
            return self._formula(found.args[0], scope, wanted=not wanted, depth=depth)
        parts: list[Formula] = []
        for plain, nodes in groupby(found.args, key=lambda part: not _has_subselect(part)):
            if plain:
                parts.append(self._plain(list(nodes), scope, wanted=wanted, boolop=found.boolop))
            else:
                parts += [self._formula(n, scope, wanted=wanted, depth=depth) for n in nodes]
        return (AllOf if (found.boolop == pb.AND_EXPR) is wanted else AnyOf)(tuple(parts))

    # Plain parts

    def _plain(
        self, nodes: Sequence[Any], scope: Scope, *, wanted: bool, boolop: int = pb.AND_EXPR
    ) -> Plain:
        """Return operands of one AND or OR, all on the innermost table, as one filter."""
        select = pb.SelectStmt()
        select.CopyFrom(parse("SELECT WHERE true").stmts[0].stmt.select_stmt)
        select.where_clause.Clear()
        expression = select.where_clause
        if not wanted:
            expression.bool_expr.boolop = pb.NOT_EXPR
            expression = expression.bool_expr.args.add()
        if len(nodes) == 1:
            expression.CopyFrom(nodes[0])
        else:
            expression.bool_expr.boolop = boolop
            for node in nodes:
                expression.bool_expr.args.add().CopyFrom(node)
        for reference in postgast.find_nodes(select, pb.ColumnRef):
            column = self._column(reference, scope)
            if column.level:
                self._refuse(
                    reference,
                    f"column {column.name} is of a table outside the sub-select: only "
                    "equality of a column of each, as an operand of the outermost AND, is followed",
                )
            del reference.fields[:]
            reference.fields.add().string.sval = column.name
        return Plain(self._deparse(select, nodes[0]), self._position(nodes[0]))

    def _deparse(self, select: Any, at: Any) -> str:
        tree = parse("SELECT")
        tree.stmts[0].stmt.select_stmt.CopyFrom(select)
        written = postgast.deparse(tree)
        again = parse(written)
        strip_locations(tree)
        strip_locations(again)
        if again.stmts[0].stmt != tree.stmts[0].stmt:
            self._refuse(at, "this expression cannot be separated from the sub-selects beside it")
        return str(written).removeprefix("SELECT WHERE ")

    def _column(self, reference: Any, scope: Scope) -> Column:
        found = find_column(reference, scope)
        if isinstance(found, NameFault):
            self._refuse(reference, _NAME_FAULTS[found])
        return found

    # Sub-selects

    def _test(self, link: Any, scope: Scope, *, wanted: bool, depth: int) -> SetTest:
        if depth >= _DEEPEST:
            self._refuse(link, f"sub-selects are nested more than {_DEEPEST} deep")
        is_exists = link.sub_link_type == pb.EXISTS_SUBLINK
        if not is_exists:
            wanted = wanted is self._is_any(link)
        select = link.subselect.select_stmt
        self._refuse_fault(select, link, is_exists=is_exists)
        inner = self._inner_table(select.from_clause[0].range_var)
        named = select.from_clause[0].range_var
        alias = named.alias.aliasname
        inside = Scope(inner.table, alias or inner.table.name, bool(alias), scope)
        for reference in postgast.find_nodes(
            pb.SelectStmt(target_list=select.target_list), pb.ColumnRef
        ):
            if is_exists and reference.fields[-1].HasField("string"):
                self._column(reference, inside)
        pairs = [] if is_exists else self._compared(link, select, inside)
        in_select = len(pairs)
        rest: list[Formula] = []
        for part in _conjuncts(select.where_clause):
            pair = self._correlation(part, inside)
            if pair is None:
                rest.append(self._formula(part, inside, wanted=True, depth=depth + 1))
            else:
                pairs.append(pair)
        if not pairs:
            self._refuse(
                link,
                "the sub-select does not depend on the row: write EXISTS with equality of a column "
                "of each table",
            )
        kind = SetTestKind.IN if wanted else SetTestKind.NOT_EXISTS
        if not wanted and not is_exists:
            if len(pairs) > 1:
                self._refuse(
                    link,
                    "NOT IN of several columns, or of a sub-select that reads the outer table, "
                    "is not followed" + ("" if in_select > 1 else ": write NOT EXISTS"),
                )
            kind = SetTestKind.NOT_IN
        return self._set_test(kind, pairs, _all_of(rest), inside, link)

    def _set_test(
        self,
        kind: SetTestKind,
        pairs: list[tuple[str, str, Any]],
        rest: Formula | None,
        inside: Scope,
        link: Any,
    ) -> SetTest:
        """Make the test; its columns are in the order of the inner ones, so that equal sets are."""
        assert inside.outer is not None
        outers = {column.name: column for column in inside.outer.table.columns}
        inners = {column.name: column for column in inside.table.columns}
        for outer, inner, at in pairs:
            if (why := why_not_equal(outers[outer], inners[inner])) is not None:
                self._refuse(at, why)
        columns = sorted({(inner, outer) for outer, inner, _ in pairs})
        subselect = Subselect(inside.table.oid, tuple(inner for inner, _ in columns), rest)
        return SetTest(kind, tuple(outer for _, outer in columns), subselect, self._position(link))

    def _is_any(self, link: Any) -> bool:
        """Whether it is true for a member; for ``<> ALL`` it is not."""
        operator = [part.string.sval for part in link.oper_name]
        if operator and operator[:-1] not in ([], ["pg_catalog"]):
            self._refuse(link, "only = of pg_catalog is followed")
        name = operator[-1] if operator else "="
        if link.sub_link_type == pb.ANY_SUBLINK and name == "=":
            return True
        if link.sub_link_type == pb.ALL_SUBLINK and name == "<>":
            return False
        self._refuse(link, "only IN, NOT IN, EXISTS and NOT EXISTS are followed")

    def _refuse_fault(self, select: Any, link: Any, *, is_exists: bool) -> None:
        fault = refuse_select(select, is_exists=is_exists)
        if fault is not None:
            reason, node = fault
            self._refuse(node if _first_location(node) is not None else link, reason)

    def _inner_table(self, named: Any) -> InnerTable:
        found = self._lookup(named.schemaname or None, named.relname)
        if isinstance(found, str):
            self._refuse(named, found)
        if (why := select_faults(found, only=not named.inh)) is not None:
            self._refuse(named, f"{found.table}: {why}")
        return found

    def _compared(self, link: Any, select: Any, inside: Scope) -> list[tuple[str, str, Any]]:
        """Return the outer and the inner column of each column of an IN."""
        assert inside.outer is not None
        kind, row = unwrap(link.testexpr)
        outers = list(row.args) if kind == "row_expr" else [link.testexpr]
        inners = [target.res_target.val for target in select.target_list]
        if len(outers) != len(inners):
            few = "few" if len(inners) < len(outers) else "many"
            self._refuse(link, f"subquery has too {few} columns")
        pairs = []
        for outer, inner in zip(outers, inners, strict=True):
            names = []
            for node, scope in ((outer, inside.outer), (inner, inside)):
                kind, reference = unwrap(node)
                if kind != "column_ref":
                    self._refuse(node, "only columns are compared with a sub-select")
                column = self._column(reference, scope)
                if column.level:
                    self._refuse(
                        reference,
                        f"column {column.name} is not of {scope.table}, but of a table outside the "
                        "sub-select",
                    )
                names.append(column.name)
            pairs.append((names[0], names[1], outer))
        return pairs

    def _correlation(self, node: Any, inside: Scope) -> tuple[str, str, Any] | None:
        """Return the outer and the inner column if `node` is the equality of both."""
        columns = [
            (self._column(reference, inside), reference)
            for side in equality_of(node)
            for reference in [unwrap(side)[1]]
        ]
        if sorted(column.level for column, _ in columns) != [0, 1]:
            return None
        inner = next(column.name for column, _ in columns if column.level == 0)
        outer = next(column.name for column, _ in columns if column.level == 1)
        return outer, inner, node

    # Errors

    def _refuse(self, node: Any, reason: str) -> NoReturn:
        raise FilterError(
            f"a row filter over other tables: {reason}",
            text=self._text,
            position=self._position(node),
            hint="docs/row-filters.md has the forms that are followed",
        )

    def _position(self, node: Any) -> int:
        location = _first_location(node)
        inside = max((location or 0) - len(_PREFIX), 0)
        return self._offset + len(self._where.encode()[:inside].decode(errors="ignore"))


def _conjuncts(node: Any) -> list[Any]:
    """Return the operands of nested ANDs, in order; none for an empty WHERE."""
    kind, found = unwrap(node)
    if kind == "bool_expr" and found.boolop == pb.AND_EXPR:
        return [part for operand in found.args for part in _conjuncts(operand)]
    return [node] if kind else []


def _all_of(parts: list[Formula]) -> Formula | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _first_location(node: Any) -> int | None:
    """Return the least byte offset in a tree, or None."""
    found = []
    for field, value in node.ListFields():
        if field.message_type is not None:
            each = (
                value if hasattr(value, "__len__") and not hasattr(value, "ListFields") else [value]
            )
            found += [place for child in each if (place := _first_location(child)) is not None]
        elif field.name == "location" and value > 0:
            found.append(value)
    return min(found, default=None)
