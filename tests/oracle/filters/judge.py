"""What the gateway makes of a filter, beside what the server says."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal

from gateway.errors import FilterError
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter import FilterEvaluationError, RowFilter, compile_filter
from gateway.rowfilter.compile import reference
from gateway.rowfilter.expr import IsNull
from gateway.rowfilter.interpret import interpret
from gateway.rowfilter.types import PARSERS
from tests.oracle.filters.server import TOO_LARGE, Answers, Table

__all__ = ["Judge", "identical", "outcome", "reason", "same"]

Row = tuple[bytes | None, ...]


class Judge:
    """Compares, for one table."""

    def __init__(self, table: Table) -> None:
        self._major = table.connection.info.server_version // 10000
        self._columns = table.columns
        self._names = [column.name for column in table.columns]
        self._rows = table.rows
        self._values = [self._read(row) for row in table.rows]

    def compile(self, text: str) -> RowFilter | str:
        """The filter, or why it is refused."""
        try:
            return compile_filter(text, self._columns, major=self._major)
        except FilterError as error:
            return reason(error)
        except Exception as error:
            return f"compiling failed: {error!r}"

    def truths(self, text: str, answers: Answers) -> Iterator[str]:
        """Differences of a filter from its values: interpreted, reference, generated, negated."""
        filter_ = self.compile(text)
        if isinstance(filter_, str):
            # A constant part that fails does so for every row.
            if not all(error is not None and same(error, filter_) for error in answers.errors):
                yield f"refused: {filter_}"
            return
        generated = filter_.bind(self._names)
        negated = compile_filter(f"NOT ({text})", self._columns, major=self._major).bind(
            self._names
        )
        slow = reference(filter_.expr, self._names)
        evaluate = interpret(filter_.expr)
        for number, row in enumerate(self._rows):
            value, error = answers.values[number], answers.errors[number]
            values = self._values[number]
            truth = None if value is None else value == b"t"
            for name, function, wanted in (
                ("interpreted", lambda: evaluate(values), truth),  # noqa: B023
                ("reference", lambda: slow(row), truth is True),  # noqa: B023
                ("generated", lambda: generated(row), truth is True),  # noqa: B023
                ("negated", lambda: negated(row), truth is False),  # noqa: B023
            ):
                got = outcome(function)
                if not _agree(got, wanted, error):
                    server = error if error is not None else truth
                    yield f"{name}: {got!r}, the server {server!r}; {self._shown(row, filter_)}"

    def value(self, is_null: RowFilter, type_oid: int, answers: Answers) -> Iterator[str]:
        """Differences of the value itself; `is_null` is the filter ``(expression) IS NULL``."""
        parse = PARSERS.get(type_oid)
        if parse is None or not isinstance(is_null.expr, IsNull):
            return
        evaluate = interpret(is_null.expr.argument)
        for number, raw in enumerate(answers.values):
            error = answers.errors[number]
            got = outcome(lambda: evaluate(self._values[number]))  # noqa: B023
            wanted = None if raw is None else parse(raw)
            agree = _agree(got, got, error) if error is not None else identical(got, wanted)
            if not agree:
                server = error if error is not None else raw
                row = self._shown(self._rows[number], is_null)
                yield f"value {got!r}, the server {server!r}; {row}"

    def equality(self, text: str, answer: str, answers: Answers) -> Iterator[str]:
        """Differences of a filter that compares with the column `answer`, IS NOT DISTINCT FROM.

        Each row is seen with the server's answer in that column, and with none.
        """
        filter_ = self.compile(text)
        if isinstance(filter_, str):
            if not all(error is not None and same(error, filter_) for error in answers.errors):
                yield f"refused: {filter_}"
            return
        generated = filter_.bind(self._names)
        index = self._names.index(answer)
        for row, value, error in zip(self._rows, answers.values, answers.errors, strict=True):
            for given in {value, None}:
                seen = (*row[:index], given, *row[index + 1 :])
                got = outcome(lambda: generated(seen))  # noqa: B023
                if not _agree(got, given == value, error):
                    server = error if error is not None else value
                    yield (
                        f"IS NOT DISTINCT FROM {given!r}: {got!r}, the server has {server!r}; "
                        f"{self._shown(row, filter_)}"
                    )

    def _read(self, row: Row) -> Mapping[str, object]:
        return {
            column.name: None if raw is None else PARSERS[column.type_oid](raw)
            for column, raw in zip(self._columns, row, strict=True)
        }

    def _shown(self, row: Row, filter_: RowFilter) -> str:
        found = dict(zip(self._names, row, strict=True))
        read = {name: found[name] for name in sorted(filter_.columns)}
        return f"row {read}"


def _agree(got: object, wanted: object, error: str | None) -> bool:
    if error == TOO_LARGE:
        return True
    return got is wanted if error is None else isinstance(got, str) and same(error, got)


def outcome(function: Callable[[], object]) -> object:
    """What `function` returns, or the text of its error; any other exception is a finding."""
    try:
        return function()
    except EvaluationError as error:
        return error.message
    except FilterEvaluationError as error:
        return error.reason
    except Exception as error:
        return error


def reason(error: FilterError) -> str:
    """Why a filter was refused, without where."""
    return error.message.partition(": ")[2].partition("\n")[0]


def same(server: str, ours: object) -> bool:
    """The same error; ours leaves out the values that PostgreSQL puts into its text."""
    if not isinstance(ours, str) or not ours:
        return False
    if server in ours:
        return True
    if " is out of range for type " in server and server.split(" is out of ")[1] in ours:
        return True
    # Left out are words in quotes and numbers only, so what is left stands in the same order.
    server, ours = (re.sub(r"\(-?[0-9]+\)", "", text) for text in (server, ours))
    left = re.sub(r'".*"|:.*|(?<!\w)-?[0-9][0-9.]*(?!\w)', " ", server, flags=re.DOTALL)
    words = iter(_words(server))
    return all(word in words for word in _words(ours)) and set(_words(left)) <= set(_words(ours))


def _words(text: str) -> list[str]:
    return [word.strip('",:;') for word in text.split() if word.strip('",:;')]


def identical(left: object, right: object) -> bool:
    """Equal, and not to be told apart: the scale of a numeric and the sign of a zero count."""
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left.as_tuple() == right.as_tuple()
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("d", left) == struct.pack("d", right) or (
            left != left and right != right
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(identical(left[k], right[k]) for k in left)
    if is_dataclass(left) and not isinstance(left, type):
        return all(
            identical(getattr(left, field.name), getattr(right, field.name))
            for field in fields(left)
        )
    return left == right
