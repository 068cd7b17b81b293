"""What routing asks of the outside: the source's catalog, ids of schemas, answers about rows.

Declared here, so that routing can be read and tested without PostgreSQL and a registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gateway.core.errors import TransientError
from gateway.core.lsn import Lsn
from gateway.definitions.model import Column, Plan, Table
from gateway.pgoutput.messages import LogicalMessage
from gateway.pgtypes.binary import TypeInfo
from gateway.rowfilter import Answer, Question


class UnannouncedError(Exception):
    """The stream speaks of a relation that it never announced; `oid` is the relation's."""

    def __init__(self, oid: int) -> None:
        super().__init__(oid)
        self.oid = oid


class UnexpectedFilterError(TransientError):
    """A filter that the server evaluates has come up, and nobody asks the server yet."""


class Replanner(Protocol):
    """Reads the plan again when the stream shows that it may have changed.

    Attributes:
        refused_filters: Number of DDL messages with a filter that was not believed.
    """

    refused_filters: int

    def now(self, again: int | None) -> Plan | None:
        """Return the plan as of now; None when it is the same.

        `again` is the OID of the relation that is announced, if that was announced before.
        """

    def believe(self, message: LogicalMessage, xid: int | None) -> bytes:
        """Return the body of a DDL message that stands in transaction `xid` of the stream.

        Raises:
            UnbelievedError: somebody else than the event triggers has written it.
            TransientError: the server cannot be asked.
        """

    def hear(self, content: bytes, commit_lsn: Lsn) -> Plan | None:
        """Return the plan from a DDL message on about altered publications, or None.

        Raises:
            UnbelievedError: it does not read.
            TransientError: the server cannot be asked.
        """


class CatalogReader(Protocol):
    """The source's catalog as it is now, asked when a Relation message brings something new."""

    def table(self, oid: int) -> Table | None:
        """Describe a table or partitioned table, or return None when it is gone."""

    def column(self, name: str, type_oid: int, type_modifier: int) -> Column | None:
        """Describe a column of which only a Relation message is left; None: its type is gone."""

    def type_info(self, oid: int) -> TypeInfo:
        """Describe a type, for reading its binary format.

        Raises:
            SchemaError: there is no such type.
        """


class SchemaIds(Protocol):
    """The schema registry, as far as encoding needs it."""

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Return the id of `schema` under `subject`, registering it when it is new.

        Raises:
            SchemaRefusedError: the registry refuses it as incompatible.
            TransientError: the registry cannot be reached.
        """


class Evaluator(Protocol):
    """A server that evaluates row filters, one question at a time."""

    def fileno(self) -> int:
        """Readable when there may be an answer."""

    @property
    def busy(self) -> bool:
        """A question has been asked whose answer was not collected."""

    def ask(self, question: Question, rows: Sequence[Sequence[bytes | None]]) -> None:
        """Send the rows' values of the question's columns and return at once; only if not `busy`.

        Raises:
            TransientError: the connection is gone.
        """

    def collect(self) -> Answer | None:
        """Return the answer, or None while the server works on it; never waits.

        Raises:
            TransientError: the connection is gone, or there is no answer in time.
            FatalError: the server does not understand the question.
        """
