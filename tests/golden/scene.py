"""One database of a real server in which a golden case is played, and the facts that SQL gives.

Expectations never come from the bytes: row values are written by hand, everything else (OIDs, xids,
commit times, LSN ranges, column lists) is asked from the server with SQL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from devkit.embedded.postgres import EmbeddedPostgres
from gateway.core.lsn import parse_lsn
from tests.golden.layout import split_fields

__all__ = ["SETTINGS", "Scene", "old"]

SETTINGS: Final = {"track_commit_timestamp": "on", "logical_decoding_work_mem": "64kB"}
_TIME: Final = "(extract(epoch from {} - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint"
_BULK: Final = 100  # from so many messages on, one line for each


def old(kind: str, *columns: str | None) -> dict[str, Any]:
    """Return what is expected of an old tuple."""
    return {"kind": kind, "columns": list(columns)}


class Scene:
    """Plays SQL, notes it for the head of the file, and collects what must come out of it.

    Args:
        server: A running server with `SETTINGS`.
        name: Of the case; names the database, too.
        options: Of pgoutput, beyond ``publication_names``.
        two_phase: Make the slot with two_phase.
    """

    def __init__(
        self,
        server: EmbeddedPostgres,
        name: str,
        options: Mapping[str, str],
        *,
        two_phase: bool = False,
    ) -> None:
        self.name = name
        self._server = server
        self._options = {"publication_names": "p", **options}
        self._two_phase = two_phase
        self._database = f"golden_{name.replace('-', '_')}"
        self._head: list[str] = []
        self.expected: list[tuple[str, dict[str, Any]]] = []
        with server.connect() as admin:
            admin.execute(f"CREATE DATABASE {self._database}")
        self.connection = server.connect(self._database)

    def setup(self, *statements: str) -> None:
        """Run what comes before the slot."""
        self.sql(*statements, "CREATE PUBLICATION p FOR ALL TABLES")
        self.connection.execute(
            "SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, %s)",
            (self._database, self._two_phase),
        )
        self._head.append("-- here the slot is made")

    def sql(self, *statements: str) -> None:
        """Run statements and note them."""
        for statement in statements:
            self.connection.execute(statement)
            self._head.append(f"{statement};")

    def value(self, query: str, *parameters: object) -> Any:
        """Return one value; not noted, it changes nothing."""
        row = self.connection.execute(query, parameters).fetchone()
        assert row is not None
        return row[0]

    def begin(self) -> int:
        """Begin a transaction and return its xid."""
        self.sql("BEGIN")
        return int(self.value("SELECT pg_current_xact_id()::text"))

    def ends(self, statement: str, xid: int, lsn: str = "commit_lsn") -> dict[str, Any]:
        """Run what ends a transaction; return the facts of its commit record."""
        before = self._lsn()
        self.sql(statement)
        between = {"between": [before, self._lsn()]}
        facts: dict[str, Any] = {lsn: between, "end_lsn": between, "flags": 0}
        if lsn == "commit_lsn":
            facts["commit_time"] = self.commit_time(xid)
        return facts

    def commit_time(self, xid: int) -> int:
        """Return when `xid` committed, in microseconds since 2000-01-01."""
        query = f"SELECT {_TIME.format('pg_xact_commit_timestamp(%s::text::xid)')}"
        return int(self.value(query, str(xid)))

    def prepare_time(self, gid: str) -> int:
        """Return when `gid` was prepared."""
        prepared = "SELECT prepared FROM pg_prepared_xacts WHERE gid = %s"
        return int(self.value(f"SELECT {_TIME.format(f'({prepared})')}", gid))

    def transaction(
        self, *statements: str, inside: list[tuple[str, dict[str, Any]]] | None = None
    ) -> None:
        """Play a transaction that is sent whole, and expect it."""
        xid = self.begin()
        self.sql(*statements)
        commit = self.ends("COMMIT", xid)
        begin = {"final_lsn": commit["commit_lsn"], "commit_time": commit["commit_time"]}
        self.expect("Begin", xid=xid, **begin)
        self.expected += inside or []
        self.expect("Commit", **commit)

    def expect(self, message: str, **facts: Any) -> None:
        """Expect a message with these fields; others are free."""
        self.expected.append((message, facts))

    def oid(self, table: str) -> int:
        """Return a table's OID."""
        return int(self.value("SELECT %s::regclass::oid", table))

    def relation(self, table: str, **more: Any) -> tuple[str, dict[str, Any]]:
        """Return what a Relation message must say now, from the catalog."""
        query = (
            "SELECT relreplident = 'f' OR coalesce(attnum = ANY (indkey), false), attname,"
            " atttypid::bigint, atttypmod FROM pg_attribute JOIN pg_class c ON c.oid = attrelid"
            " LEFT JOIN pg_index ON indrelid = c.oid AND CASE relreplident WHEN 'd' THEN"
            " indisprimary WHEN 'i' THEN indisreplident END"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        columns = [list(row) for row in self.connection.execute(query, (table,))]
        names = "SELECT {} FROM pg_class WHERE oid = %s::regclass"
        return "Relation", {
            "relation_oid": self.oid(table),
            "namespace": self.value(names.format("relnamespace::regnamespace::text"), table),
            "name": self.value(names.format("relname"), table),
            "replica_identity": self.value(names.format("relreplident"), table),
            "columns": columns,
            **more,
        }

    def row(self, message: str, table: str, **facts: Any) -> tuple[str, dict[str, Any]]:
        """Return what is expected of a message about a row."""
        return message, {"relation_oid": self.oid(table), **facts}

    def write(self, folder: Path) -> None:
        """Fetch the messages and write ``<name>.hex`` and ``<name>.json``."""
        options = [text for pair in self._options.items() for text in pair]
        query = "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, VARIADIC %s)"
        rows = self.connection.execute(query, (self._database, options)).fetchall()
        messages = [bytes(row[0]) for row in rows if isinstance(row[0], bytes)]
        folder.mkdir(parents=True, exist_ok=True)
        text = "\n".join([*self._header(), *self._body(messages)])
        (folder / f"{self.name}.hex").write_text(text.rstrip() + "\n", encoding="utf-8")
        expected = ",\n".join(json.dumps(item, sort_keys=True) for item in self.expected)
        (folder / f"{self.name}.json").write_text(f"[\n{expected}\n]\n", encoding="utf-8")

    def close(self) -> None:
        """Drop the slot and the database."""
        self.connection.execute("SELECT pg_drop_replication_slot(%s)", (self._database,))
        self.connection.close()
        with self._server.connect() as admin:
            admin.execute(f"DROP DATABASE {self._database}")

    def _header(self) -> list[str]:
        version = self.value("SHOW server_version")
        return [
            f"# PostgreSQL {version}; written by tests/golden/capture.py",
            f"# pgoutput: {json.dumps(self._options)}",
            *(f"# {line}" for line in self._head),
            "",
        ]

    def _body(self, messages: list[bytes]) -> list[str]:
        lines: list[str] = []
        in_stream, parallel = False, self._options.get("streaming") == "parallel"
        for data in messages:
            fields = list(split_fields(data, in_stream=in_stream, parallel=parallel))
            in_stream = (in_stream or data[:1] == b"S") and data[:1] != b"E"
            if len(messages) >= _BULK:
                shown = " ".join(part.hex().upper() for part, _ in fields)
                lines += [f"{shown}  # {fields[0][1]}", ""]
            else:
                lines += [f"{part.hex().upper():<16}  # {what}" for part, what in fields]
                lines.append("")
        return lines

    def _lsn(self) -> int:
        return parse_lsn(str(self.value("SELECT pg_current_wal_insert_lsn()")))
