"""Interfaces that routing needs from outside: source catalog, schema ids, row-filter evaluation.

They are declared here so that routing can be read and tested without PostgreSQL and a registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gateway.core.errors import TransientError
from gateway.definitions.model import Column, Plan, Table
from gateway.pgoutput.messages import LogicalMessage
from gateway.pgtypes.binary import TypeInfo
from gateway.rowfilter import Answer, Question


class UnannouncedError(Exception):
    """Error of a reference to relation `oid`, which the stream never announced."""

    def __init__(self, oid: int) -> None:
        super().__init__(oid)
        self.oid = oid


class UnexpectedFilterError(TransientError):
    """Error of a new filter that only the server can evaluate while no evaluator is connected."""


class Replanner(Protocol):
    """Reader of new plans when the stream shows that the plan may have changed.

    Attributes:
        refused_filters: Number of DDL messages with a filter that was rejected.
        altered_trees: OIDs of the partitioned tables, with those above, whose partitions the last
            DDL message is about.
    """

    refused_filters: int
    altered_trees: frozenset[int]

    def current_plan(self, repeated: int | None, xid: int | None) -> Plan | None:
        """Return the current plan; None if it has not changed.

        Args:
            repeated: OID of the relation that the stream announces, if it has done so before.
            xid: Committed transaction that announces it; None if it is prepared.
        """

    def authenticate(self, message: LogicalMessage, xid: int | None) -> bytes:
        """Return the body of a DDL message found in transaction `xid` of the stream.

        Raises:
            UntrustedMessageError: it was not written by the event triggers.
            TransientError: the server cannot be asked.
        """

    def apply_ddl(self, content: bytes, xid: int) -> Plan | None:
        """Return the plan in force after a DDL message of transaction `xid`, or None.

        Raises:
            UntrustedMessageError: it cannot be parsed.
            TransientError: the server cannot be asked.
        """


class CatalogReader(Protocol):
    """Current catalog of the source, queried when a Relation message brings something new."""

    def table(self, oid: int) -> Table | None:
        """Describe a table or partitioned table; None if it no longer exists."""

    def column(self, name: str, type_oid: int, type_modifier: int) -> Column | None:
        """Describe a column known only from a Relation message; None if its type does not exist."""

    def type_info(self, oid: int) -> TypeInfo:
        """Describe a type, for reading its binary format.

        Raises:
            SchemaError: there is no such type.
        """


class SchemaIds(Protocol):
    """Schema registry, as far as encoding needs it."""

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Return the id of `schema` under `subject`, and register it if it is new.

        Raises:
            SchemaRefusedError: the registry refuses it as incompatible.
            TransientError: the registry cannot be reached.
        """


class Evaluator(Protocol):
    """Server that evaluates row filters, one question at a time."""

    def fileno(self) -> int:
        """File descriptor that becomes readable when there may be an answer."""

    @property
    def busy(self) -> bool:
        """Whether the answer to a question has not been collected yet."""

    def ask(self, question: Question, rows: Sequence[Sequence[bytes | None]]) -> None:
        """Send the rows' values of the question's columns and return at once; only if not `busy`.

        Raises:
            TransientError: the connection is gone.
        """

    def collect(self) -> Answer | None:
        """Return the answer, or None if the server has not finished it; never blocks.

        Raises:
            TransientError: the connection is gone, or the answer did not arrive in time.
            FatalError: the server does not understand the question.
        """
