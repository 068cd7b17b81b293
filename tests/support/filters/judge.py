"""Verdicts of the gateway on a filter, beside those of the server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from gateway.core.descriptors import wait_readable
from gateway.definitions.sql.expression import column_names
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter import (
    Answer,
    AskedColumn,
    FilterEvaluationError,
    JudgedRow,
    Question,
    RowFilter,
    asks,
    compile_filter,
    place_filter,
)
from gateway.rowfilter.evaluation.compile import reference
from gateway.rowfilter.evaluation.interpret import interpret
from gateway.rowfilter.types import PARSERS
from gateway.source.filters.evaluator import ServerEvaluator
from tests.support.filters.server import TOO_LARGE, Answers, Table
from tests.support.gateway.conditions import bind_compiled

__all__ = ["Judge", "outcome", "same"]

Row = tuple[bytes | None, ...]
_TEXT = 25
_WAIT_S = 120


class Judge:
    """Compares, for one table."""

    def __init__(self, table: Table, evaluator: ServerEvaluator) -> None:
        self._columns = table.columns
        self._names = [column.name for column in table.columns]
        self._rows = table.rows
        self._values = [self._read(row) for row in table.rows]
        self._evaluator = evaluator
        self.here = self.there = self.compiled = 0

    def truths(self, text: str, answers: Answers) -> Iterator[str]:
        """Differences of a filter from its values, by whoever evaluates it and by the server."""
        filter_ = place_filter(text, self._columns)
        if filter_.refused is None:
            self.here += 1
            yield from self._here(text, filter_, answers)
        else:
            self.there += 1
        truths = [value == b"t" for value in answers.values]
        yield from self._asked(filter_, self._rows, truths, answers.errors)

    def equality(self, text: str, answer: str, answers: Answers) -> Iterator[str]:
        """Differences of a filter that compares with the column `answer`, IS NOT DISTINCT FROM.

        Each row is seen with the server's answer in that column.
        """
        index = self._names.index(answer)
        rows = [
            (*row[:index], value, *row[index + 1 :])
            for row, value in zip(self._rows, answers.values, strict=True)
        ]
        filter_ = place_filter(text, self._columns)
        yield from self._asked(filter_, rows, [True] * len(rows), answers.errors)

    def _here(self, text: str, filter_: RowFilter, answers: Answers) -> Iterator[str]:
        generated = filter_.bind(self._names)
        negated = compile_filter(f"NOT ({text})", self._columns).bind(self._names)
        slow = reference(filter_.expr, self._names)
        evaluate = interpret(filter_.expr)
        compiled = bind_compiled([filter_], self._names)
        self.compiled += compiled is not None
        for number, row in enumerate(self._rows):
            value, error = answers.values[number], answers.errors[number]
            values = self._values[number]
            truth = None if value is None else value == b"t"
            for name, function, wanted in (
                ("interpreted", lambda: evaluate(values), truth),  # noqa: B023
                ("reference", lambda: slow(row), truth is True),  # noqa: B023
                ("generated", lambda: generated(row), truth is True),  # noqa: B023
                ("negated", lambda: negated(row), truth is False),  # noqa: B023
                ("compiled", lambda: compiled and compiled(row), truth is True),  # noqa: B023
            ):
                got = outcome(function)
                if got is None and name == "compiled":
                    continue  # it leaves this filter, or this row, to the generated function
                if not _agree(got, wanted, error):
                    server = error if error is not None else truth
                    yield f"{name}: {got!r}, the server {server!r}; {self._shown(row, filter_)}"

    def _asked(
        self,
        filter_: RowFilter,
        rows: Sequence[Row],
        truths: Sequence[bool],
        errors: Sequence[str | None],
    ) -> Iterator[str]:
        """Differences of the evaluator's flags, and of the decision that is made with them."""
        names = column_names(filter_.text)  # also those of parts that are folded away here
        read = [column for column in self._columns if column.name in names]
        question = Question(
            tuple(
                AskedColumn(c.name, c.base_type_oid, None if c.collation is None
                            or c.collation.name == "default" else c.collation.name)
                for c in read
            )
            or (AskedColumn("none", _TEXT, None),),
            (filter_.text,),
        )  # fmt: skip
        indexes = [self._names.index(column.name) for column in read]
        values = [[row[index] for index in indexes] or [None] for row in rows]
        answer = self._ask(question, values)
        decides = needed = None
        if filter_.refused is not None:
            decides = filter_.bind(self._names, {filter_.text: 0})
            needed = asks([filter_], self._names)
        for number, (row, truth, error) in enumerate(zip(rows, truths, errors, strict=True)):
            raised = answer.errors.get((number, 0))
            got: object = raised.message if raised else answer.flags[number : number + 1] == b"t"
            if not _agree(got, truth, error, exactly=True):
                yield f"asked: {got!r}, the server {error or truth!r}; {self._shown(row, filter_)}"
            if decides is None or needed is None:
                continue
            judged = JudgedRow(row)
            if needed(row):
                judged.flags = answer.flags[number : number + 1]
                judged.errors = {} if raised is None else {0: raised}
            got = outcome(lambda: decides(judged))  # noqa: B023
            if not _agree(got, truth, error, exactly=True):
                yield f"mixed: {got!r}, the server {error or truth!r}; {self._shown(row, filter_)}"

    def _ask(self, question: Question, values: Sequence[Sequence[bytes | None]]) -> Answer:
        self._evaluator.ask(question, values)
        while (answer := self._evaluator.collect()) is None:
            assert wait_readable([self._evaluator.fileno()], _WAIT_S)
        return answer

    def _read(self, row: Row) -> Mapping[str, object]:
        return {
            column.name: None if raw is None else PARSERS[column.type_oid](raw)
            for column, raw in zip(self._columns, row, strict=True)
            if column.type_oid in PARSERS
        }

    def _shown(self, row: Row, filter_: RowFilter) -> str:
        found = dict(zip(self._names, row, strict=True))
        read = {name: found[name] for name in sorted(filter_.columns)}
        return f"row {read}"


def _agree(got: object, wanted: object, error: str | None, *, exactly: bool = False) -> bool:
    if error == TOO_LARGE:
        return True
    if error is None:
        return got is wanted
    return got == error if exactly else isinstance(got, str) and same(error, got)


def outcome(function: Callable[[], object]) -> object:
    """Return the result of `function`, or its error's text; any other exception is a finding."""
    try:
        return function()
    except EvaluationError as error:
        return error.message
    except FilterEvaluationError as error:
        return error.reason
    except Exception as error:
        return error


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
