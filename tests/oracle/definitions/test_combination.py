"""How publications combine: the plan against pgoutput and the catalog functions of real servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from gateway.definitions.combine import make_plan
from gateway.definitions.model import Operation, Plan, Publish
from gateway.definitions.sql.parser import parse_definitions
from gateway.pgoutput.decoder import Decoder
from gateway.pgoutput.messages import Delete, Insert, Relation, Truncate, Update
from gateway.source.catalog.catalog import read_catalog
from gateway.source.provisioning.own_publications import ensure_publications
from tests.support.backends.servers import Connection, Database

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", [16, 18], indirect=True),
]

MANUAL_TABLES = """
    CREATE TABLE t1(a int, b int, c text, PRIMARY KEY(a, c));
    CREATE TABLE t2(d int, e int, f int, PRIMARY KEY(d));
    CREATE TABLE t3(g int, h int, i int, PRIMARY KEY(g));
    ALTER TABLE t2 REPLICA IDENTITY FULL;"""
MANUAL_ROWS = """
    INSERT INTO t1 VALUES (2, 102, 'NSW'), (6, 106, 'NSW'), (7, 107, 'NT');
    INSERT INTO t2 VALUES (1, 99, 1), (10, 50, 3), (11, NULL, 4);
    INSERT INTO t3 VALUES (9, 1, 1), (10, 2, 2);"""
MANUAL = """
    CREATE PUBLICATION p1 FOR TABLE t1 WHERE (a > 5 AND c = 'NSW');
    CREATE PUBLICATION p2 FOR TABLE t1, t2 WHERE (e = 99);
    CREATE PUBLICATION p3 FOR TABLE t2 WHERE (d = 10), t3 WHERE (g = 10);"""

TREE = """
    CREATE SCHEMA other;
    CREATE TABLE root(a int PRIMARY KEY, b int) PARTITION BY RANGE(a);
    CREATE TABLE middle(b int, a int NOT NULL) PARTITION BY RANGE(a);
    CREATE TABLE low(a int PRIMARY KEY, b int);
    ALTER TABLE root ATTACH PARTITION middle FOR VALUES FROM (0) TO (100);
    ALTER TABLE middle ATTACH PARTITION low FOR VALUES FROM (0) TO (10);
    CREATE TABLE other.high PARTITION OF middle FOR VALUES FROM (10) TO (100);
    CREATE TABLE rest PARTITION OF root DEFAULT;"""
TREE_ROWS = "INSERT INTO root SELECT n, n FROM generate_series(1, 200, 3) AS n;"


@dataclass(frozen=True)
class Scene:
    tables: str
    rows: str
    publications: str
    subscriptions: tuple[str, ...]
    truncates: tuple[str, ...]


def _tree(publications: str, *subscriptions: str) -> Scene:
    return Scene(
        TREE, TREE_ROWS, publications, subscriptions, ("low", "other.high", "middle", "root")
    )


VIA = "WITH (publish_via_partition_root = true)"
SCENES = {
    "the manual's publications, one by one and together": Scene(
        MANUAL_TABLES, MANUAL_ROWS, MANUAL, ("p1", "p2", "p3", "p1, p2, p3"), ("t1", "t2, t3")
    ),
    "operations differ between publications": Scene(
        MANUAL_TABLES,
        MANUAL_ROWS,
        """CREATE PUBLICATION p1 FOR TABLE t1 WHERE (a > 5) WITH (publish = 'insert');
           CREATE PUBLICATION p2 FOR TABLE t1 WHERE (a < 5) WITH (publish = 'update, delete');
           CREATE PUBLICATION p3 FOR TABLE t1, t3 WITH (publish = 'delete, truncate');
           CREATE PUBLICATION p4 FOR TABLE t1 WITH (publish = '');""",
        ("p1", "p2", "p1, p2", "p1, p2, p3", "p4", "p1, p4"),
        ("t1, t3",),
    ),
    "all tables beside a filter": Scene(
        MANUAL_TABLES,
        MANUAL_ROWS,
        MANUAL + "CREATE PUBLICATION everything FOR ALL TABLES WITH (publish = 'insert');",
        ("everything", "p1, everything", "p1, p3"),
        ("t1", "t2", "t3"),
    ),
    "schema beside a filter, and within one publication": Scene(
        MANUAL_TABLES,
        MANUAL_ROWS,
        """CREATE PUBLICATION s FOR TABLES IN SCHEMA public WITH (publish = 'update');
           CREATE PUBLICATION p1 FOR TABLE t1 WHERE (a > 5 AND c = 'NSW');
           CREATE PUBLICATION mixed FOR TABLE t1 WHERE (a > 5), TABLES IN SCHEMA CURRENT_SCHEMA;""",
        ("s", "p1, s", "mixed", "mixed, p1"),
        ("t1", "t2"),
    ),
    "column lists": Scene(
        MANUAL_TABLES,
        MANUAL_ROWS,
        """CREATE PUBLICATION listed FOR TABLE t1 (c, a), t3 (g, h);
           CREATE PUBLICATION same FOR TABLE t1 (a, c) WHERE (a > 5);
           CREATE PUBLICATION full_list FOR TABLE t3 (i, h, g);
           CREATE PUBLICATION unlisted FOR TABLE t3 WHERE (g = 9);""",
        ("listed", "listed, same", "full_list, unlisted", "unlisted"),
        ("t1", "t3"),
    ),
    "inheritance with and without ONLY": Scene(
        """CREATE TABLE base(a int PRIMARY KEY, b int);
           CREATE TABLE heir(c int, PRIMARY KEY (a)) INHERITS (base);
           CREATE TABLE grandchild(PRIMARY KEY (a)) INHERITS (heir);""",
        """INSERT INTO base VALUES (1, 1), (9, 9); INSERT INTO heir VALUES (2, 1, 1), (8, 8, 8);
           INSERT INTO grandchild VALUES (3, 3, 3), (7, 7, 7);""",
        """CREATE PUBLICATION family FOR TABLE base WHERE (a > 5);
           CREATE PUBLICATION alone FOR TABLE ONLY base;
           CREATE PUBLICATION star FOR TABLE heir * WHERE (a < 5);""",
        ("family", "alone", "star", "family, alone", "family, star"),
        ("base", "ONLY heir"),
    ),
    "the manual's partitions": Scene(
        """CREATE TABLE parent(a int PRIMARY KEY) PARTITION BY RANGE(a);
           CREATE TABLE child PARTITION OF parent DEFAULT;""",
        "INSERT INTO parent VALUES (2), (4), (6); INSERT INTO child VALUES (3), (5), (7);",
        f"""CREATE PUBLICATION p4 FOR TABLE parent WHERE (a < 5), child WHERE (a >= 5) {VIA};
            CREATE PUBLICATION p4_leaf FOR TABLE parent, child WHERE (a >= 5);""",
        ("p4", "p4_leaf", "p4, p4_leaf"),
        ("child", "parent"),
    ),
    "a tree under its root, for all": _tree(
        f"CREATE PUBLICATION r FOR TABLE root WHERE (a < 50) {VIA};", "r"
    ),
    "a tree at several levels": _tree(
        f"""CREATE PUBLICATION r FOR TABLE root WHERE (a < 50) {VIA};
            CREATE PUBLICATION m FOR TABLE middle WHERE (a > 5) {VIA};
            CREATE PUBLICATION rm FOR TABLE root WHERE (a < 150), middle WHERE (a > 5) {VIA};
            CREATE PUBLICATION l FOR TABLE low WHERE (a = 7), other.high;
            CREATE PUBLICATION flat FOR TABLE root, low WHERE (a = 4);
            CREATE PUBLICATION mflat FOR TABLE middle WITH (publish = 'insert, truncate');""",
        *(
            "r",
            "m",
            "rm",
            "l",
            "flat",
            "mflat",
            "r, m",
            "m, r",
            "l, r",
            "m, l",
            "m, flat",
            "flat, l",
            "r, mflat",
        ),
    ),
    "a subtree under its own root, for all": _tree(
        f"CREATE PUBLICATION m FOR TABLE middle (a) WHERE (a > 5) {VIA};", "m"
    ),
    "schemas and all tables over a tree": _tree(
        f"""CREATE PUBLICATION o FOR TABLES IN SCHEMA other;
            CREATE PUBLICATION pub FOR TABLES IN SCHEMA public;
            CREATE PUBLICATION pub_via FOR TABLES IN SCHEMA public {VIA};
            CREATE PUBLICATION both_via FOR TABLES IN SCHEMA public, other {VIA};
            CREATE PUBLICATION a FOR ALL TABLES;
            CREATE PUBLICATION a_via FOR ALL TABLES {VIA};
            CREATE PUBLICATION m FOR TABLE middle WHERE (a > 5) {VIA};""",
        *(
            "o",
            "pub",
            "pub_via",
            "both_via",
            "a",
            "a_via",
            "m, a",
            "m, a_via",
            "m, o",
            "o, pub_via",
        ),
    ),
}

_KINDS = {Insert: Operation.INSERT, Update: Operation.UPDATE, Delete: Operation.DELETE}

Events = Counter[tuple[str, str]]


@pytest.fixture(params=list(SCENES.values()), ids=list(SCENES))
def scene(request: pytest.FixtureRequest) -> Scene:
    scene: Scene = request.param
    return scene


@pytest.fixture
def connection(database: Database, scene: Scene) -> Iterator[Connection]:
    with database.connect() as connection:
        connection.execute(scene.tables.encode())
        yield connection


@pytest.fixture
def plan(connection: Connection, scene: Scene) -> Plan:
    text = scene.publications + "".join(
        f"CREATE SUBSCRIPTION s{index} CONNECTION '' PUBLICATION {names};"
        for index, names in enumerate(scene.subscriptions)
    )
    definitions = parse_definitions(text)
    catalog = read_catalog(connection, definitions)
    return make_plan(definitions, catalog, prefix="gw", missing_identity="refuse")


def test_the_initial_copy_is_what_a_native_subscription_would_fetch(
    connection: Connection, scene: Scene, plan: Plan
) -> None:
    connection.execute(scene.publications.encode())
    for index, names in enumerate(scene.subscriptions):
        copies = [copy for copy in plan.copies if copy.subscription == f"s{index}"]
        planned = {
            str(plan.tables[copy.target_oid]): (copy.columns, {f.text for f in copy.filters})
            for copy in copies
        }
        assert planned == dict(_native_copies(connection, names)), names
        assert len(planned) == len(copies)


def test_every_relation_is_published_as_pgoutput_publishes_it(
    connection: Connection, scene: Scene, plan: Plan
) -> None:
    connection.execute(scene.publications.encode())
    with _slot(connection) as slot:
        expected = {
            index: _play(connection, scene, plan, f"s{index}")
            for index in range(len(scene.subscriptions))
        }
        _run(connection, scene, plan)
        for index, names in enumerate(scene.subscriptions):
            events, columns = _read(connection, slot, names.split(", "))
            assert events == expected[index], names
            for publish in _of(plan, f"s{index}"):
                target = plan.tables[publish.target_oid]
                sent = columns.get(str(target))
                if sent is not None and str(target) in {t for _, t in events}:
                    assert sent == (publish.columns or tuple(c.name for c in target.columns))


def test_the_gateways_own_publications_bring_every_change_that_is_needed_unfiltered(
    connection: Connection, scene: Scene, plan: Plan
) -> None:
    ensure_publications(connection, plan, prefix="gw")
    names = [publication.name for publication in plan.server_publications]
    needed: dict[int, set[Operation]] = {}
    for publish in plan.publishes:
        needed.setdefault(publish.relation_oid, set()).update(publish.operations)
    roots = {o: p for p in plan.server_publications if p.via_root for o in p.table_oids}
    with _slot(connection) as slot:
        expected: Events = Counter()
        connection.execute(scene.rows.encode())
        for oid, operations in needed.items():
            table = plan.tables[oid]
            arrives = [r for r in roots if oid in plan.tables[r].leaves] or [oid]
            # Whoever takes the relation must take it as it arrives, or as what it is.
            targets = [p.target_oid for p in plan.publishes if p.relation_oid == oid]
            assert arrives == [oid] or [*arrives * len(targets)] == targets
            rows = _count(connection, plan, oid, "true")
            for operation in operations - {Operation.TRUNCATE}:
                expected[operation.value, str(plan.tables[arrives[0]])] += rows
            _touch(connection, str(table))
        events, _ = _read(connection, slot, names)
        for event, count in expected.items():
            assert events[event] == count


def test_the_gateways_own_publications_are_stable_and_leave_only_their_own_names(
    connection: Connection, plan: Plan
) -> None:
    assert ensure_publications(connection, plan, prefix="gw")
    assert ensure_publications(connection, plan, prefix="gw") == []
    names = connection.execute("SELECT pubname FROM pg_publication ORDER BY 1").fetchall()
    assert [row[0] for row in names] == ["gw_leaf", "gw_leaf_insert", "gw_root", "gw_root_insert"]


def _of(plan: Plan, subscription: str) -> list[Publish]:
    return [publish for publish in plan.publishes if publish.subscription == subscription]


def _play(connection: Connection, scene: Scene, plan: Plan, subscription: str) -> Events:
    """Predict from the plan what `_run` shows, the filters evaluated by the server on the rows."""
    events: Events = Counter()
    publishes = _of(plan, subscription)
    with connection.transaction(force_rollback=True):
        connection.execute(scene.rows.encode())
        for publish in publishes:
            target = str(plan.tables[publish.target_oid])
            for operation, clauses in publish.filters.items():
                condition = " OR ".join(f"({clause.text})" for clause in clauses) or "true"
                rows = _count(connection, plan, publish.relation_oid, condition)
                events[operation.value, target] += rows
    for statement in scene.truncates:
        named = _named(connection, statement)
        seen = {
            str(plan.tables[publish.target_oid])
            for publish in publishes
            if Operation.TRUNCATE in publish.operations and publish.target_oid in named
        }
        events.update(("truncate", name) for name in seen)
    return +events


def _run(connection: Connection, scene: Scene, plan: Plan) -> None:
    connection.execute(scene.rows.encode())
    for table in plan.tables.values():
        if table.kind == "r":
            _touch(connection, str(table))
    for statement in scene.truncates:
        connection.execute(f"TRUNCATE {statement}".encode())


def _touch(connection: Connection, table: str) -> None:
    """Update every row to what it is, then delete it."""
    column = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 LIMIT 1",
        (table,),
    ).fetchone()
    assert column is not None
    connection.execute(f"UPDATE ONLY {table} SET {column[0]} = {column[0]}".encode())
    connection.execute(f"DELETE FROM ONLY {table}".encode())


def _named(connection: Connection, tables: str) -> set[int]:
    """OIDs that a TRUNCATE of `tables` names: with partitions, and heirs unless ONLY."""
    oids = set()
    for table in tables.split(", "):
        name = table.removeprefix("ONLY ")
        rows = connection.execute(
            """WITH RECURSIVE heirs(oid) AS (
                 SELECT %s::regclass::oid
               UNION SELECT inhrelid FROM heirs JOIN pg_inherits ON inhparent = oid)
               SELECT oid FROM heirs""",
            (name,),
        ).fetchall()
        oids |= {row[0] for row in (rows[:1] if table != name else rows)}
    return oids


def _count(connection: Connection, plan: Plan, oid: int, condition: str) -> int:
    query = f"SELECT count(*) FROM ONLY {plan.tables[oid]} WHERE {condition}"
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


class _slot:
    """A temporary slot of the output plugin pgoutput."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._name = ""

    def __enter__(self) -> str:
        row = self._connection.execute(
            "SELECT slot_name FROM pg_create_logical_replication_slot("
            "'oracle_' || pg_backend_pid(), 'pgoutput', true)"
        ).fetchone()
        assert row is not None
        self._name = str(row[0])
        return self._name

    def __exit__(self, *_: object) -> None:
        self._connection.execute("SELECT pg_drop_replication_slot(%s)", (self._name,))


def _read(
    connection: Connection, slot: str, names: Sequence[str]
) -> tuple[Events, dict[str, tuple[str, ...]]]:
    decoder = Decoder()
    events: Events = Counter()
    relations: dict[int, str] = {}
    columns: dict[str, tuple[str, ...]] = {}
    rows = connection.execute(
        "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
        " 'proto_version', '1', 'publication_names', %s)",
        (slot, ",".join(names)),
    )
    for (data,) in rows:
        message = decoder.decode(data)
        if isinstance(message, Relation):
            name = f"{message.namespace}.{message.name}"
            relations[message.relation_oid] = name
            columns[name] = tuple(column.name for column in message.columns)
        elif isinstance(message, Truncate):
            events.update(("truncate", relations[oid]) for oid in message.relation_oids)
        elif isinstance(message, Insert | Update | Delete):
            events[_KINDS[type(message)].value, relations[message.relation_oid]] += 1
    return events, columns


def _native_copies(
    connection: Connection, names: str
) -> Iterator[tuple[str, tuple[tuple[str, ...], set[str]]]]:
    """Ask as fetch_table_list and fetch_remote_table_info ask the publisher."""
    publications = names.split(", ")
    tables = connection.execute(
        """SELECT DISTINCT c.oid, n.nspname || '.' || c.relname
           FROM (SELECT (pg_get_publication_tables(VARIADIC %s::text[])).relid) AS gpt
           JOIN pg_class AS c ON c.oid = gpt.relid
           JOIN pg_namespace AS n ON n.oid = c.relnamespace""",
        (publications,),
    ).fetchall()
    for oid, name in tables:
        rows = connection.execute(
            """SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid), ARRAY(
                 SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = gpt.relid
                 AND a.attnum = ANY(gpt.attrs::int2[]) ORDER BY a.attnum)
               FROM pg_publication AS p, LATERAL pg_get_publication_tables(p.pubname) AS gpt
               WHERE gpt.relid = %s AND p.pubname = ANY(%s)""",
            (oid, publications),
        ).fetchall()
        filters = [row[0] for row in rows]
        (columns,) = {tuple(row[1]) for row in rows}
        yield name, (columns, set() if None in filters else set(filters))
