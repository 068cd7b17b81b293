"""Random DDL and rows, done to a publisher and, where its definitions need it, to the judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from tests.oracle.ddl.test_changing_publications import refresh
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Connection, Scene, current_lsn, value_of

__all__ = ["TABLES", "Alterations", "Workload", "ddl_of", "is_quiet", "toggle"]

MAKE = "CREATE TABLE {} (a int PRIMARY KEY, b text NOT NULL, n {});"
SCHEMAS = ("public", "other")
TABLES = ("public.t0", "public.t1", "public.t2")


class Workload:
    """Does to publisher and native subscriber what the definitions of both need.

    Columns of one name have one type in all tables: a registry refuses a narrower type under the
    same topic, also of another table. Tables are named with their schemas.
    """

    def __init__(
        self, publisher: Connection, native: NativeSubscription, rng: Random, tables: list[str]
    ) -> None:
        self._publisher = publisher
        self._native = native
        self._rng = rng
        self.tables = tables
        self._keys = dict.fromkeys(tables, "a")
        self._added: dict[str, list[str]] = {table: [] for table in tables}
        self._next = 100
        self._type = "int"
        self.done: list[str] = []

    def step(self) -> None:
        """Take one step, and rows before and behind it."""
        table = self._rng.choice(self.tables)
        self._write(table)
        kind = self._rng.choice(self._kinds())
        self.done.append(f"{kind.__name__} {table}")
        kind(table)
        self._write(self._rng.choice(self.tables))

    def one_more(self) -> str:
        """Make one more published table, and return its name.

        A gateway that has it has looked at the catalog behind all DDL before. Tables that exchanged
        their names do not show that. The subscriber has the table as well: without it, the next
        REFRESH PUBLICATION would fail.
        """
        name = f"public.seen{self._next}"
        self._both(f"CREATE TABLE {name} (a int PRIMARY KEY)")
        return name

    def _kinds(self) -> list[Callable[[str], None]]:
        kinds = [self._add, self._drop_column, self._widen, self._key, self._identity]
        kinds += [self._rename, self._make_again, self._make_as, self._swap, self._move]
        return [*kinds, self._truncate, self._truncate_and_add, self._rewrite, self._write]

    def _both(self, ddl: str, here: str | None = None) -> None:
        """Run a statement on the subscriber, when it has applied what was before, and here.

        `here`: another one for here.
        """
        try:
            self._native.wait_until_applied(current_lsn(self._publisher))
        except AssertionError as late:
            late.add_note(f"after {self.done}")
            raise
        with self._native.database.connect() as subscriber:
            subscriber.execute(ddl.encode())
        self._publisher.execute((here or ddl).encode())

    def _write(self, table: str) -> None:
        self._insert(table)
        low = self._rng.randrange(7)
        self._publisher.execute(f"UPDATE {table} SET n = n + 1 WHERE n = {low}".encode())
        self._publisher.execute(
            f"UPDATE {table} SET a = a + 100000, b = b || '+' WHERE a = {self._next}".encode()
        )
        self._publisher.execute(f"DELETE FROM {table} WHERE a = {self._next - 1}".encode())

    def _insert(self, table: str) -> None:
        for _ in range(3):
            self._next += 1
            values = (self._next, f"k{self._next}", self._next % 7)
            self._publisher.execute(
                f"INSERT INTO {table} (a, b, n) VALUES (%s, %s, %s)".encode(), values
            )

    def _add(self, table: str) -> None:
        name = f"c{self._next}"
        self._added[table].append(name)
        self._both(f"ALTER TABLE {table} ADD COLUMN {name} text")
        # A column shows with the next change of the table, and the UPDATE may find no row.
        self._insert(table)
        self._publisher.execute(f"UPDATE {table} SET {name} = b WHERE n > 3".encode())

    def _drop_column(self, table: str) -> None:
        if self._added[table]:
            self._both(f"ALTER TABLE {table} DROP COLUMN {self._added[table].pop()}")

    def _widen(self, table: str) -> None:
        if self._type == "int":
            self._type = "bigint"
            for each in (table, *(other for other in self.tables if other != table)):
                self._both(f"ALTER TABLE {each} ALTER n TYPE bigint")

    def _key(self, table: str) -> None:
        new, name = {"a": "b", "b": "a"}[self._keys[table]], self._key_name(table)
        key = f"k{self._next}"
        self._both(
            f"ALTER TABLE {table} DROP CONSTRAINT {name}, ADD CONSTRAINT {key} PRIMARY KEY ({new})"
        )
        self._keys[table] = new

    def _key_name(self, table: str) -> str:
        query = "SELECT conname FROM pg_constraint WHERE contype = 'p' AND conrelid = %s::regclass"
        return str(value_of(self._publisher, query, table))

    def _identity(self, table: str) -> None:
        kind = self._rng.choice(["FULL", "DEFAULT", "INDEX", "NOTHING"])
        if kind == "INDEX":
            index = f"i{self._next}"
            self._both(
                f"CREATE UNIQUE INDEX {index} ON {table} (b);"
                f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {index}"
            )
        elif kind == "NOTHING":
            # PostgreSQL lets nobody update or delete then, and no subscriber may expect more after.
            to = f"ALTER TABLE {table} REPLICA IDENTITY "
            self._both(f"{to} DEFAULT", f"{to} NOTHING")
            self._insert(table)
            self._publisher.execute(f"{to} DEFAULT".encode())
        else:
            self._both(f"ALTER TABLE {table} REPLICA IDENTITY {kind}")

    def _rename(self, table: str) -> None:
        schema, name = table.split(".")[0], f"r{self._next}"
        self._both(f"ALTER TABLE {table} RENAME TO {name}")
        self._called(table, f"{schema}.{name}")

    def _move(self, table: str) -> None:
        schema, name = table.split(".")
        to = SCHEMAS[1 - SCHEMAS.index(schema)]
        if f"{to}.{name}" not in self.tables:
            # There, a table may be that has left its name to this one, but not its key's.
            key = f"RENAME CONSTRAINT {self._key_name(table)} TO k{self._next}"
            self._both(f"ALTER TABLE {table} {key}; ALTER TABLE {table} SET SCHEMA {to}")
            self._called(table, f"{to}.{name}")

    def _swap(self, table: str) -> None:
        schema, name = table.split(".")
        others = [each for each in self.tables if each != table and each.startswith(f"{schema}.")]
        if not others:
            return
        other = self._rng.choice(others)
        self._both(
            f"BEGIN; ALTER TABLE {table} RENAME TO swap;"
            f"ALTER TABLE {other} RENAME TO {name};"
            f"ALTER TABLE {schema}.swap RENAME TO {other.split('.')[1]}; COMMIT"
        )
        keys, added = self._keys, self._added
        keys[table], keys[other] = keys[other], keys[table]
        added[table], added[other] = added[other], added[table]

    def _called(self, table: str, name: str) -> None:
        self.tables[self.tables.index(table)] = name
        self._keys[name] = self._keys.pop(table)
        self._added[name] = self._added.pop(table)

    def _make_again(self, table: str) -> None:
        self._both(f"DROP TABLE {table}")
        make = MAKE.format(table, self._type)
        self._publisher.execute(make.encode())
        self._write(table)
        refresh(self._native, make)
        self._keys[table], self._added[table] = "a", []

    def _make_as(self, table: str) -> None:
        """Replace it by a table that is made of its rows, all in one transaction."""
        key, new = self._keys[table], f"{table.split('.')[0]}.m{self._next}"
        self._both(
            f"CREATE TABLE {new} (LIKE {table}); ALTER TABLE {new} ADD PRIMARY KEY ({key})",
            f"BEGIN; CREATE TABLE {new} AS SELECT * FROM {table};"
            f"ALTER TABLE {new} ALTER b SET NOT NULL, ADD PRIMARY KEY ({key});"
            f"DROP TABLE {table}; COMMIT",
        )
        refresh(self._native, f"DROP TABLE {table}")
        self._called(table, new)

    def _rewrite(self, table: str) -> None:
        self._publisher.execute(
            self._rng.choice(
                [
                    f"VACUUM FULL {table}",
                    f"BEGIN; ALTER TABLE {table} ALTER b TYPE varchar USING b || '';"
                    f"ALTER TABLE {table} ALTER b TYPE text; COMMIT",
                ]
            ).encode()
        )

    def _truncate(self, table: str) -> None:
        self._publisher.execute(f"TRUNCATE {table}".encode())

    def _truncate_and_add(self, table: str) -> None:
        name = f"c{self._next}"
        self._added[table].append(name)
        self._both(
            f"ALTER TABLE {table} ADD COLUMN {name} text",
            f"BEGIN; INSERT INTO {table} (a, b) VALUES (-1, 'gone'); TRUNCATE {table};"
            f"ALTER TABLE {table} ADD COLUMN {name} text;"
            f"INSERT INTO {table} (a, b, n, {name}) VALUES (-2, 'here', 2, 'x'); COMMIT",
        )


class Alterations(Workload):
    """Alters filters and operations of publication ``p``, and columns of its tables.

    No rows are given other values: a table that is copied again has what was not published between.
    """

    def one_more(self) -> str:
        """See `Workload`."""
        name = super().one_more()
        self._publisher.execute(f"ALTER PUBLICATION p ADD TABLE {name}".encode())
        return name

    def _kinds(self) -> list[Callable[[str], None]]:
        kinds = [self._add, self._drop_column, self._truncate, self._vacuum]
        return [*kinds, self._filter, self._filter, self._filter, self._publish]

    def _vacuum(self, table: str) -> None:
        self._publisher.execute(f"VACUUM FULL {table}".encode())

    def _filter(self, table: str) -> None:
        del table
        self._publisher.execute(f"ALTER PUBLICATION p SET TABLE {self.filtered()}".encode())

    def filtered(self) -> str:
        """All tables, each with a filter by chance."""
        filters = (
            "a % 2 = 1",
            f"a > {self._next}",
            "a % 3 <> 0 OR a > 100000",
            f"a < {self._next - 9}",
            "",
        )
        wheres = [self._rng.choice(filters) for _ in self.tables]
        return ", ".join(
            f"{table} WHERE ({where})" if where else table
            for table, where in zip(self.tables, wheres, strict=True)
        )

    def _publish(self, table: str) -> None:
        del table
        kinds = self._rng.sample(["insert", "update", "delete", "truncate"], k=3)
        listed = ", ".join(sorted({*kinds, "insert"}))
        self._publisher.execute(f"ALTER PUBLICATION p SET (publish = '{listed}')".encode())


def ddl_of(tables: Iterable[str]) -> str:
    """Statements that make them, and the other schema."""
    return "CREATE SCHEMA other;" + "".join(MAKE.format(table, "int") for table in tables)


def toggle(s: Scene, process: GatewayProcess | None, rng: Random) -> GatewayProcess | None:
    """Stop or kill the gateway, or start it; not always when it is down."""
    if process is None:
        return s.project.start() if rng.random() < 0.5 else None
    if rng.random() < 0.5:
        process.kill()
    else:
        process.wait_until_doing("streaming")
        assert process.terminate() == 0, process.log()
    return None


def is_quiet(s: Scene, tables: Iterable[str]) -> bool:
    """Whether the gateway has all tables under their names, and has copied them."""
    status = s.cli("status").out
    shown = {
        line.split(": ")[1]: line.split(": ")[2] for line in status.split("\n") if "copy of" in line
    }
    return shown == dict.fromkeys(tables, "ready")
