"""Evaluator of row filters on a server, in a session of its own, without blocking.

One `Question` is one prepared statement. Its first use is without rows: where the planner already
fails on a constant part (``1 / 0 = 1``), that filter fails for every row and is not asked again.
When a statement raises, its rows are halved until the one that raises is alone, and then each
filter is asked alone; so only what PostgreSQL fails on is affected. A filter that takes too long
for one row, twice, fails from then on: as long as it is asked, everybody waits.

The session has the walsender's settings, so that values read as they were written; its search_path
is the one under which filters are printed.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import psycopg
from psycopg import pq
from psycopg.pq import abc

from gateway.core.background import OnWait, keep_waiting
from gateway.core.descriptors import wait_for_socket
from gateway.core.errors import FatalError, GatewayError, TransientError
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter.server.question import RAISED, Answer, Question, statement
from gateway.source.filters.compatibility import check_alike
from gateway.source.session.connection import SESSION_SETTINGS, connect
from gateway.source.session.server_errors import classify_server_error, is_text_too_long

__all__ = ["ServerEvaluator", "encode_array"]

_SETTINGS: Final = {
    **SESSION_SETTINGS,
    "default_transaction_read_only": "on",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
_TEXT_OID: Final = 25
_SEND_S: Final = 0.05
_GRACE_S: Final = 5.0
"""Seconds that a statement may take beyond the server's own limit."""
_TIMED_OUT: Final = "57014"
_TOO_COMPLEX: Final = "54"
_SLOW: Final = 2
"""Number of times that a filter may take too long for one row before it fails for all."""
_PASSING: Final = frozenset({"08", "40", "53", "57", "58"})
"""SQLSTATE classes that say nothing about a row."""
_TYPES: Final = (
    "SELECT oid::pg_catalog.text, pg_catalog.quote_ident(typname) FROM pg_catalog.pg_type"
    " WHERE oid = ANY($1)"
)

Rows: TypeAlias = Sequence[Sequence[bytes | None]]
Waiting: TypeAlias = Generator[None, None, Answer]


class _Raised(Exception):
    """The statement raised because of a row, or of a constant part."""

    def __init__(self, error: EvaluationError, *, timed_out: bool) -> None:
        self.error = error
        self.timed_out = timed_out


@dataclass(slots=True)
class _Statement:
    """State of a question in the session.

    Attributes:
        name: Name of the prepared statement; None when all its filters fail for every row.
        places: Places, in the question, of the filters in the statement.
        failing: Error that a filter raises for every row, by place in the question.
        single: Questions of one filter each, by place.
        slow: Number of times that one row alone has taken too long, in the question of one filter.
    """

    name: bytes | None
    places: Sequence[int]
    failing: dict[int, EvaluationError] = field(default_factory=dict)
    single: dict[int, _Statement] = field(default_factory=dict)
    slow: int = 0

    @property
    def is_slow(self) -> bool:
        """Whether it is too slow to be asked any more."""
        return self.slow >= _SLOW


class ServerEvaluator:
    """Evaluator on a server: a `gateway.routing.ports.Evaluator`. Not thread-safe.

    Args:
        dsn: DSN of the server.
        timeout_s: Timeout of one statement on the server, in seconds.
        source_dsn: DSN of the source, whose answers are wanted.
        on_wait: Called while connecting; see `gateway.core.background.OnWait`.
        asked: Called with the number of rows of each question.
    """

    def __init__(
        self,
        dsn: str,
        *,
        timeout_s: float,
        source_dsn: str,
        on_wait: OnWait = keep_waiting,
        asked: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._asked = asked
        self._dsn = dsn
        self._timeout_s = timeout_s
        self._source_dsn = source_dsn
        self._on_wait = on_wait
        self._connection: psycopg.Connection | None = None
        self._conn: abc.PGconn
        self._prepared: dict[Question, _Statement] = {}
        self._types: dict[int, str] = {}
        self._work: Waiting | None = None
        self._answer: Answer | None = None
        self._statements = 0
        self._too_slow = EvaluationError(f"evaluating it takes longer than {timeout_s:g} s")

    def open(self) -> None:
        """Connect, if that has not been done; for another server than the source, compare them.

        Raises:
            ConfigError, TransientError, FatalError: as `connect`.
            ConfigError: the server may evaluate filters otherwise than the source.
        """
        if self._connection is not None:
            return
        if self._dsn != self._source_dsn:
            with (
                connect(self._source_dsn, on_wait=self._on_wait) as source,
                connect(self._dsn, on_wait=self._on_wait) as other,
            ):
                check_alike(source, other)
        self._connection = connect(
            self._dsn,
            application_name="pgsluice filters",
            settings=_SETTINGS,
            statement_timeout_s=self._timeout_s,
            on_wait=self._on_wait,
        )
        self._conn = self._connection.pgconn
        self._conn.nonblocking = 1

    def fileno(self) -> int:
        """Return a descriptor that is readable when the server has answered."""
        return self._conn.socket

    @property
    def busy(self) -> bool:
        """Whether the answer to a question has not been collected yet."""
        return self._work is not None

    def ask(self, question: Question, rows: Rows) -> None:
        """Send a question about rows, each with the values of the question's columns in order.

        Raises:
            TransientError: the connection is gone.
        """
        assert self._work is None
        self.open()
        self._asked(len(rows))
        self._work = self._judge_all(question, rows)
        self._advance()

    def collect(self) -> Answer | None:
        """Return the answer, or None while the server works on it; never waits.

        Raises:
            TransientError: the connection is gone, or the server does not answer in time.
            FatalError: the server does not understand the question.
        """
        if self._answer is None and self._work is not None:
            self._advance()
        if self._answer is not None:
            found, self._answer, self._work = self._answer, None, None
            return found
        return None

    def close(self) -> None:
        """End the session."""
        if self._connection is not None:
            self._connection.close()

    def _advance(self) -> None:
        assert self._work is not None
        try:
            next(self._work)
        except StopIteration as done:
            self._answer = done.value
        except psycopg.Error as error:
            raise classify_server_error(None, str(error), doing=_DOING) from None

    # Questions

    def _judge_all(self, question: Question, rows: Rows) -> Waiting:
        prepared = self._prepared.get(question)
        if prepared is None:
            prepared = yield from self._prepare(question, range(len(question.filters)))
            self._prepared[question] = prepared
        errors: dict[tuple[int, int], EvaluationError] = {}
        flags = yield from self._judge(question, prepared, rows, 0, errors)
        slow = [p for p in prepared.places if prepared.single.get(p, prepared).is_slow]
        if slow:  # asked again and again, it would hold up all tables
            yield from self._give_up(question, prepared, slow)
        if not prepared.failing:
            return Answer(flags, errors)
        width, full = len(prepared.places), len(question.filters)
        whole = bytearray(b"%c" % RAISED * (len(rows) * full))
        for row in range(len(rows)):
            for number, place in enumerate(prepared.places):
                whole[row * full + place] = flags[row * width + number]
            errors |= {(row, place): error for place, error in prepared.failing.items()}
        return Answer(bytes(whole), errors)

    def _give_up(
        self, question: Question, prepared: _Statement, slow: Sequence[int]
    ) -> Generator[None, None, None]:
        """Let filters that take too long fail for every row from now on."""
        left = [place for place in prepared.places if place not in slow]
        after = _Statement(None, ())
        if left:
            after = yield from self._prepare(question, left)
        after.failing |= prepared.failing | dict.fromkeys(slow, self._too_slow)
        self._prepared[question] = after

    def _judge(
        self,
        question: Question,
        prepared: _Statement,
        rows: Rows,
        first: int,
        errors: dict[tuple[int, int], EvaluationError],
    ) -> Generator[None, None, bytes]:
        """Return the flags of `rows`, the first of which is number `first` of the question."""
        if prepared.name is None:
            return b""
        if prepared.is_slow:
            errors |= {(first + n, prepared.places[0]): self._too_slow for n in range(len(rows))}
            return b"%c" % RAISED * len(rows)
        if not any(single.is_slow for single in prepared.single.values()):
            try:
                return (yield from self._execute(prepared.name, question, rows))
            except _Raised as raised:
                middle = len(rows) // 2
                if middle:
                    left = yield from self._judge(question, prepared, rows[:middle], first, errors)
                    right = yield from self._judge(
                        question, prepared, rows[middle:], first + middle, errors
                    )
                    return left + right
                if len(prepared.places) == 1:
                    if raised.timed_out:  # once, it may have been the server
                        prepared.slow += 1
                        flag = yield from self._judge(question, prepared, rows, first, errors)
                        if prepared.slow < _SLOW:
                            prepared.slow = 0
                        return flag
                    errors[first, prepared.places[0]] = raised.error
                    return b"%c" % RAISED
        found = []
        for place in prepared.places:
            if place not in prepared.single:
                prepared.single[place] = yield from self._prepare(question, [place])
            single = prepared.single[place]
            if (error := single.failing.get(place)) is None:
                found.append((yield from self._judge(question, single, rows, first, errors)))
            else:
                errors |= {(first + n, place): error for n in range(len(rows))}
                found.append(b"%c" % RAISED * len(rows))
        return bytes(flag for flags in zip(*found, strict=True) for flag in flags)

    def _prepare(
        self, question: Question, places: Sequence[int]
    ) -> Generator[None, None, _Statement]:
        yield from self._name_types(question)
        texts = tuple(question.filters[place] for place in places)
        sql = statement(Question(question.columns, texts), self._types)
        self._statements += 1
        name = b"f%d" % self._statements
        self._conn.send_prepare(name, sql.encode())
        try:
            yield from self._result()
        except _Raised as raised:
            if (raised.error.sqlstate or "")[:2] != _TOO_COMPLEX:
                raise FatalError(
                    "the server does not understand a row filter that it has printed: "
                    f"{raised.error}",
                    hint="[filters] dsn must name a server of the source's major version",
                ) from None
            if len(places) == 1:
                return _Statement(None, (), {places[0]: raised.error})
            return (yield from self._prepare_alone(question, places))
        try:
            yield from self._execute(name, question, ())
        except _Raised as raised:
            if len(places) == 1:
                return _Statement(None, (), {places[0]: raised.error})
        else:
            return _Statement(name, places)
        return (yield from self._prepare_alone(question, places))

    def _prepare_alone(
        self, question: Question, places: Sequence[int]
    ) -> Generator[None, None, _Statement]:
        """Prepare a statement, without the filters that fail for every row."""
        failing: dict[int, EvaluationError] = {}
        for place in places:
            failing |= (yield from self._prepare(question, [place])).failing
        left = [place for place in places if place not in failing]
        if not left:
            return _Statement(None, (), failing)
        prepared = yield from self._prepare(question, left)
        return _Statement(prepared.name, left, failing)

    def _name_types(self, question: Question) -> Generator[None, None, None]:
        missing = {column.type_oid for column in question.columns} - self._types.keys()
        if missing:
            oids = f"{{{','.join(map(str, missing))}}}"
            self._conn.send_query_params(_TYPES.encode(), [oids.encode()])
            result = yield from self._result()
            for row in range(result.ntuples):
                oid, name = result.get_value(row, 0), result.get_value(row, 1)
                assert oid is not None
                assert name is not None
                self._types[int(oid)] = name.decode()

    # Protocol

    def _execute(self, name: bytes, question: Question, rows: Rows) -> Generator[None, None, bytes]:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(question.columns)
        parameters = [encode_array(column) for column in columns]
        self._conn.send_query_prepared(name, parameters, [pq.Format.BINARY] * len(parameters))
        result = yield from self._result()
        return result.get_value(0, 0) or b""

    def _result(self) -> Generator[None, None, abc.PGresult]:
        """Wait for the result of a query, yielding meanwhile."""
        conn, deadline = self._conn, time.monotonic() + self._timeout_s + _GRACE_S
        last: abc.PGresult | None = None
        while True:
            while conn.flush() or conn.is_busy():
                # The server reads all before it answers: sending must go on, not wait for it.
                while conn.flush():
                    if not wait_for_socket(conn.socket, _SEND_S, write=True)[1]:
                        break
                yield
                if time.monotonic() > deadline:
                    raise TransientError(
                        f"the server has not answered for {self._timeout_s + _GRACE_S:g} s while "
                        f"{_DOING}"
                    )
                conn.consume_input()
            result = conn.get_result()
            if result is None:
                break
            last = result
        if last is None:
            raise TransientError(f"{_DOING}: the server gave no answer")
        if last.status == pq.ExecStatus.FATAL_ERROR:
            raise _classified(last)
        return last


_DOING: Final = "evaluating row filters"


_FIELDS: Final = (
    pq.DiagnosticField.SQLSTATE,
    pq.DiagnosticField.MESSAGE_PRIMARY,
    pq.DiagnosticField.MESSAGE_DETAIL,
    pq.DiagnosticField.MESSAGE_HINT,
)


def _classified(result: abc.PGresult) -> GatewayError | _Raised:
    sqlstate, text, detail, hint = (
        (result.error_field(field) or b"").decode(errors="replace") for field in _FIELDS
    )
    is_row_s = sqlstate == _TIMED_OUT or is_text_too_long(sqlstate, detail=detail, hint=hint)
    if not sqlstate or (sqlstate[:2] in _PASSING and not is_row_s):
        return classify_server_error(sqlstate or None, text, doing=_DOING)
    return _Raised(EvaluationError(text, sqlstate=sqlstate), timed_out=sqlstate == _TIMED_OUT)


_HEAD: Final = struct.Struct("!iiIii").pack
_LENGTH: Final = struct.Struct("!i").pack
_NULL: Final = _LENGTH(-1)


def encode_array(values: Sequence[bytes | None]) -> bytes:
    """Encode a one-dimensional ``text[]`` in binary format.

    Source: array_recv() in arrayfuncs.c.
    """
    if not values:
        return struct.pack("!iiI", 0, 0, _TEXT_OID)
    items = [_NULL if value is None else _LENGTH(len(value)) + value for value in values]
    return _HEAD(1, 1, _TEXT_OID, len(values), 1) + b"".join(items)
