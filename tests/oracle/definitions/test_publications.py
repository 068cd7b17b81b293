"""The gateway's own publications: made once, changed when needed, harmless to every write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from gateway.core.errors import AccessError, TransientError
from gateway.definitions.combine import make_plan
from gateway.definitions.model import Plan
from gateway.definitions.server import SUFFIXES
from gateway.definitions.sql.parser import parse_definitions
from gateway.source.catalog.catalog import read_catalog
from gateway.source.provisioning.detachable_partitions import (
    MissingPartitions,
    add_partitions,
    missing_partitions,
)
from gateway.source.provisioning.own_publications import (
    check_publications,
    drop_publications,
    ensure_publications,
    extend_publications,
    missing_rights,
)
from tests.support.backends.servers import Connection, Database

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", [14, 16, 18], indirect=True),
]

TABLES = """
    CREATE TABLE keyed(a int PRIMARY KEY, b int);
    CREATE TABLE "odd "" name"(a int PRIMARY KEY);
    CREATE TABLE nokey(a int, b int);
    CREATE TABLE tree(a int PRIMARY KEY, b int) PARTITION BY RANGE(a);
    CREATE TABLE leaf PARTITION OF tree FOR VALUES FROM (0) TO (10);
    CREATE TABLE bare(a int NOT NULL, b int);
    CREATE TABLE loose(a int, b int) PARTITION BY RANGE(a);
    CREATE TABLE loose_key(a int PRIMARY KEY, b int);
    ALTER TABLE loose ATTACH PARTITION loose_key FOR VALUES FROM (0) TO (10);
    CREATE TABLE loose_bare PARTITION OF loose DEFAULT;"""

DEFINITIONS = """
    CREATE PUBLICATION p FOR TABLE keyed WHERE (a > 1), nokey, "odd "" name";
    CREATE PUBLICATION r FOR TABLE tree, loose WITH (publish_via_partition_root);
    CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p, r;"""


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        connection.execute(TABLES)
        yield connection


def _plan(connection: Connection, text: str) -> Plan:
    definitions = parse_definitions(text)
    catalog = read_catalog(connection, definitions)
    return make_plan(definitions, catalog, prefix="gw", missing_identity="insert_only")


def _published(connection: Connection) -> dict[str, tuple[set[str], str, bool]]:
    rows = connection.execute(
        """SELECT p.pubname, ARRAY(SELECT r.prrelid::regclass::text FROM pg_publication_rel AS r
               WHERE r.prpubid = p.oid), concat(
               CASE WHEN pubinsert THEN 'i' END, CASE WHEN pubupdate THEN 'u' END,
               CASE WHEN pubdelete THEN 'd' END, CASE WHEN pubtruncate THEN 't' END), pubviaroot
           FROM pg_publication AS p"""
    )
    return {name: (set(tables), operations, root) for name, tables, operations, root in rows}


def test_tables_are_grouped_by_what_their_identity_allows(connection: Connection) -> None:
    ensure_publications(connection, _plan(connection, DEFINITIONS), prefix="gw")
    published = _published(connection)
    assert published["gw_root"] == ({"tree"}, "iudt", True)
    assert published["gw_leaf"] == ({"keyed", '"odd "" name"', "loose_key"}, "iudt", False)
    assert published["gw_leaf_insert"] == ({"nokey", "loose"}, "it", False)
    assert published["gw_root_insert"][0] == set()


def test_a_tree_in_which_one_partition_has_no_identity_is_sent_as_its_root(
    connection: Connection,
) -> None:
    connection.execute(
        "CREATE TABLE plain PARTITION OF tree FOR VALUES FROM (10) TO (20);"
        "ALTER TABLE plain REPLICA IDENTITY NOTHING"
    )
    plan = _plan(connection, DEFINITIONS)
    ensure_publications(connection, plan, prefix="gw")
    published = _published(connection)
    assert (published["gw_root"][0], published["gw_root_insert"][0]) == (set(), {"tree"})
    assert published["gw_leaf"][0] >= {"leaf"}
    assert check_publications(connection, plan, prefix="gw") == []

    slot = f"slot_{connection.info.backend_pid}"
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    try:
        connection.execute(
            "CREATE TABLE later PARTITION OF tree FOR VALUES FROM (20) TO (30);"
            "INSERT INTO tree VALUES (1, 1), (11, 1), (21, 1)"
        )
        connection.execute("UPDATE tree SET b = 2 WHERE a < 20; DELETE FROM tree WHERE a < 20")
        names = ",".join(f"gw{suffix}" for suffix in SUFFIXES)
        sent = connection.execute(
            "SELECT convert_from(substr(data, 1, 1), 'LATIN1'),"
            " ('x' || encode(substr(data, 2, 4), 'hex'))::bit(32)::int::oid::regclass::text"
            " FROM pg_logical_slot_get_binary_changes("
            "%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)"
            " WHERE substr(data, 1, 1) IN ('I', 'U', 'D')",
            [slot, names],
        ).fetchall()
    finally:
        connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    assert sent == [*[("I", "tree")] * 3, ("U", "tree"), ("D", "tree")]


def test_no_write_of_the_application_fails(connection: Connection) -> None:
    ensure_publications(connection, _plan(connection, DEFINITIONS), prefix="gw")
    connection.execute(
        """INSERT INTO keyed VALUES (1, 1); INSERT INTO nokey VALUES (1, 1);
           INSERT INTO tree VALUES (1, 1); INSERT INTO loose VALUES (1, 1), (100, 1);
           UPDATE keyed SET b = 2; UPDATE nokey SET b = 2; UPDATE tree SET b = 2;
           UPDATE loose SET b = 2; DELETE FROM keyed; DELETE FROM nokey; DELETE FROM tree;
           DELETE FROM loose; TRUNCATE keyed, nokey, tree, loose;"""
    )


def test_changed_definitions_change_the_publications(connection: Connection) -> None:
    plan = _plan(connection, DEFINITIONS)
    assert ensure_publications(connection, plan, prefix="gw") != []
    assert ensure_publications(connection, plan, prefix="gw") == []
    smaller = _plan(
        connection,
        """CREATE PUBLICATION p FOR TABLE keyed WITH (publish = 'insert');
           CREATE PUBLICATION q FOR TABLE tree WITH (publish = 'update');
           CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p, q;""",
    )
    missing = check_publications(connection, smaller, prefix="gw")
    assert ensure_publications(connection, smaller, prefix="gw") == missing
    assert check_publications(connection, smaller, prefix="gw") == []
    published = _published(connection)
    assert published["gw_leaf_insert"] == ({"keyed"}, "i", False)
    assert published["gw_leaf"] == ({"tree"}, "u", False)
    assert published["gw_root"][0] == set()


def test_a_publication_that_somebody_changed_is_put_right(connection: Connection) -> None:
    plan = _plan(connection, DEFINITIONS)
    ensure_publications(connection, plan, prefix="gw")
    before = _published(connection)
    connection.execute(
        "ALTER PUBLICATION gw_leaf DROP TABLE keyed; DROP PUBLICATION gw_root;"
        "ALTER PUBLICATION gw_leaf_insert SET (publish = 'insert, update');"
        "CREATE PUBLICATION gw_root FOR ALL TABLES"
    )
    ensure_publications(connection, plan, prefix="gw")
    assert _published(connection) == before


def test_a_role_without_rights_is_told_what_an_owner_should_run(connection: Connection) -> None:
    plan = _plan(connection, DEFINITIONS)
    role = f"plain_{connection.info.backend_pid}"
    connection.execute(f"CREATE ROLE {role}".encode())
    try:
        connection.execute(f"SET ROLE {role}".encode())
        with pytest.raises(AccessError) as raised:
            ensure_publications(connection, plan, prefix="gw")
        statements = check_publications(connection, plan, prefix="gw")
        assert raised.value.hint is not None
        assert raised.value.hint.splitlines()[1:] == statements
        connection.execute("RESET ROLE")
        connection.execute("\n".join(statements).encode())
        connection.execute(f"SET ROLE {role}".encode())
        assert ensure_publications(connection, plan, prefix="gw") == []
    finally:
        connection.execute("RESET ROLE")
        connection.execute(f"DROP ROLE {role}".encode())


def test_dropping_leaves_the_publications_of_others(connection: Connection) -> None:
    connection.execute("CREATE PUBLICATION gw; CREATE PUBLICATION gw_leaf_other")
    ensure_publications(connection, _plan(connection, DEFINITIONS), prefix="gw")
    assert [len(each) for each in drop_publications(connection, prefix="gw")] == [4, 0]
    assert set(_published(connection)) == {"gw", "gw_leaf_other"}
    assert drop_publications(connection, prefix="gw") == ([], [])


def test_generated_columns_of_an_identity_do_not_make_writes_fail(
    connection: Connection, postgres_major: int
) -> None:
    if postgres_major < 18:
        pytest.skip("generated columns are published from 18 on")
    connection.execute(
        """CREATE TABLE full_row(a int, b int GENERATED ALWAYS AS (a + 1) STORED);
           ALTER TABLE full_row REPLICA IDENTITY FULL;
           CREATE TABLE virtual_row(a int, b int GENERATED ALWAYS AS (a + 1) VIRTUAL);
           ALTER TABLE virtual_row REPLICA IDENTITY FULL;
           CREATE TABLE listed(a int PRIMARY KEY, b int GENERATED ALWAYS AS (a + 1) STORED)"""
    )
    plan = _plan(
        connection,
        """CREATE PUBLICATION p FOR TABLE full_row, virtual_row, listed (a, b);
           CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p""",
    )
    ensure_publications(connection, plan, prefix="gw")
    columns = {plan.tables[p.target_oid].name: p.columns for p in plan.publishes}
    assert columns == {"full_row": None, "virtual_row": None, "listed": ("a", "b")}
    for table in ("full_row", "virtual_row", "listed"):
        connection.execute(f"INSERT INTO {table} VALUES (1)".encode())
        connection.execute(f"UPDATE {table} SET a = 2".encode())
        connection.execute(f"DELETE FROM {table}".encode())


def test_tables_that_are_renamed_or_dropped_after_the_plan_was_made_are_followed_or_left_out(
    connection: Connection,
) -> None:
    plan = _plan(connection, DEFINITIONS)
    connection.execute("ALTER TABLE keyed RENAME TO called; CREATE TABLE keyed (a int PRIMARY KEY)")
    connection.execute("DROP TABLE nokey")

    ensure_publications(connection, plan, prefix="gw")

    tables = set().union(*(names for names, _, _ in _published(connection).values()))
    assert "called" in tables
    assert not tables & {"keyed", "nokey"}
    assert ensure_publications(connection, plan, prefix="gw") == []


BY_ITSELF = """
    CREATE PUBLICATION p FOR TABLE tree, leaf;
    CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"""
BY_TREE = BY_ITSELF.replace("tree, leaf", "tree")


def test_a_partition_that_is_published_by_itself_is_a_member_beside_its_tree(
    connection: Connection,
) -> None:
    both, whole = _plan(connection, BY_ITSELF), _plan(connection, BY_TREE)
    assert check_publications(connection, both, prefix="gw") != []
    ensure_publications(connection, whole, prefix="gw")
    assert _published(connection)["gw_leaf"] == ({"tree"}, "iudt", False)

    (added,) = missing_partitions(connection, both).by_gateway
    assert extend_publications(connection, both, prefix="gw") == [added]
    assert _published(connection)["gw_leaf"] == ({"tree", "leaf"}, "iudt", False)
    assert ensure_publications(connection, both, prefix="gw") == []
    assert missing_partitions(connection, both) == MissingPartitions()

    ensure_publications(connection, whole, prefix="gw")
    assert _published(connection)["gw_leaf"] == ({"tree"}, "iudt", False)


def test_a_partition_that_was_a_table_with_a_filter_loses_it(
    connection: Connection, postgres_major: int
) -> None:
    if postgres_major < 15:
        pytest.skip("publications have row filters from 15 on")
    plan = _plan(connection, BY_ITSELF)
    ensure_publications(connection, plan, prefix="gw")
    connection.execute(
        "ALTER PUBLICATION gw_leaf DROP TABLE leaf;"
        "ALTER PUBLICATION gw_leaf ADD TABLE leaf WHERE (a > 1)"
    )
    assert len(ensure_publications(connection, plan, prefix="gw")) == 2
    assert _published(connection)["gw_leaf"][0] == {"tree", "leaf"}
    filtered = connection.execute("SELECT FROM pg_publication_rel WHERE prqual IS NOT NULL")
    assert filtered.fetchall() == []


def test_a_locked_partition_is_added_later(connection: Connection, database: Database) -> None:
    plan = _plan(connection, BY_ITSELF)
    with database.connect() as other, other.transaction():
        other.execute("LOCK TABLE leaf IN SHARE UPDATE EXCLUSIVE MODE")
        ensure_publications(connection, plan, prefix="gw")
        assert _published(connection)["gw_leaf"][0] == {"tree"}
        assert add_partitions(connection, plan)[0] == []
        missing = missing_partitions(connection, plan)
    assert missing.by_owner == ()
    assert add_partitions(connection, plan)[0] == list(missing.by_gateway)
    assert _published(connection)["gw_leaf"][0] == {"tree", "leaf"}


def test_a_partition_of_another_owner_is_left_to_that_owner(connection: Connection) -> None:
    plan = _plan(connection, BY_ITSELF)
    role = f"plain_{connection.info.backend_pid}"
    connection.execute(
        f"CREATE ROLE {role}; GRANT CREATE ON DATABASE {connection.info.dbname} TO {role};"
        f"ALTER TABLE tree OWNER TO {role}".encode()
    )
    try:
        connection.execute(f"SET ROLE {role}".encode())
        assert missing_rights(connection, plan, prefix="gw") == []
        before = missing_partitions(connection, plan)  # there is no publication to alter
        assert (before.by_owner, before.others) == ((), 1)
        ensure_publications(connection, plan, prefix="gw")
        assert _published(connection)["gw_leaf"][0] == {"tree"}
        assert ensure_publications(connection, plan, prefix="gw") == []
        missing = missing_partitions(connection, plan)
        assert (missing.by_gateway, missing.others) == ((), 1)
        connection.execute("RESET ROLE")
        connection.execute("\n".join(missing.by_owner).encode())
        assert _published(connection)["gw_leaf"][0] == {"tree", "leaf"}
        connection.execute(f"SET ROLE {role}".encode())
        assert missing_partitions(connection, plan) == MissingPartitions()
    finally:
        connection.execute("RESET ROLE")
        connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())


@pytest.fixture
def role(connection: Connection) -> Iterator[str]:
    """Yield a role that may make publications of the partitioned table and of its partition."""
    role = f"plain_{connection.info.backend_pid}"
    connection.execute(
        f"CREATE ROLE {role}; GRANT CREATE ON DATABASE {connection.info.dbname} TO {role};"
        f"ALTER TABLE tree OWNER TO {role}; ALTER TABLE leaf OWNER TO {role}".encode()
    )
    yield role
    connection.execute("RESET ROLE")
    connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())


def test_a_partition_in_a_schema_that_the_role_may_not_use_spoils_no_other(
    connection: Connection, role: str
) -> None:
    connection.execute(
        "CREATE SCHEMA closed; CREATE TABLE closed.far PARTITION OF tree FOR VALUES FROM (10)"
        f" TO (20); ALTER TABLE closed.far OWNER TO {role}".encode()
    )
    plan = _plan(connection, BY_ITSELF.replace("leaf", "leaf, closed.far"))
    connection.execute(f"SET ROLE {role}".encode())
    ensure_publications(connection, plan, prefix="gw")
    assert _published(connection)["gw_leaf"][0] == {"tree", "leaf"}
    missing = missing_partitions(connection, plan)
    assert (missing.by_gateway, missing.others) == ((), 1)
    connection.execute("RESET ROLE")
    connection.execute("\n".join(missing.by_owner).encode())
    assert _published(connection)["gw_leaf"][0] == {"tree", "leaf", "closed.far"}


def test_a_partition_that_the_server_refuses_is_left_to_the_owner_with_the_reason(
    connection: Connection,
) -> None:
    connection.execute("CREATE TABLE odd PARTITION OF tree FOR VALUES FROM (10) TO (20)")
    plan = _plan(connection, BY_ITSELF.replace("leaf", "leaf, odd"))
    ensure_publications(connection, _plan(connection, BY_TREE), prefix="gw")
    connection.execute("ALTER TABLE tree DETACH PARTITION odd; ALTER TABLE odd SET UNLOGGED")

    done, missing = add_partitions(connection, plan)

    assert len(done) == 1
    assert _published(connection)["gw_leaf"][0] == {"tree", "leaf"}
    assert (missing.by_gateway, len(missing.by_owner), missing.others) == ((), 1, 1)
    (reason,) = missing.reasons
    assert '"odd"' in reason


def test_a_locked_member_that_leaves_does_not_fail_the_attempt(
    connection: Connection, database: Database
) -> None:
    ensure_publications(connection, _plan(connection, BY_ITSELF), prefix="gw")
    plan = _plan(connection, BY_TREE)
    with database.connect() as other, other.transaction():
        other.execute("LOCK TABLE leaf IN SHARE UPDATE EXCLUSIVE MODE")
        assert ensure_publications(connection, plan, prefix="gw") == []
        assert _published(connection)["gw_leaf"][0] == {"tree", "leaf"}
    (left,) = check_publications(connection, plan, prefix="gw")
    assert ensure_publications(connection, plan, prefix="gw") == [left]
    assert _published(connection)["gw_leaf"][0] == {"tree"}


def test_a_member_whose_updates_fail_is_waited_for_when_it_leaves(
    connection: Connection, database: Database
) -> None:
    connection.execute("CREATE TABLE stays (a int PRIMARY KEY); CREATE TABLE goes (LIKE stays)")
    connection.execute("ALTER TABLE goes ADD PRIMARY KEY (a)")
    both = BY_ITSELF.replace("tree, leaf", "stays, goes")
    ensure_publications(connection, _plan(connection, both), prefix="gw")
    connection.execute("ALTER TABLE goes REPLICA IDENTITY NOTHING")
    plan = _plan(connection, both.replace(", goes", ""))
    with database.connect() as other, other.transaction():
        other.execute("LOCK TABLE goes IN SHARE UPDATE EXCLUSIVE MODE")
        with pytest.raises(TransientError):
            ensure_publications(connection, plan, prefix="gw")
    ensure_publications(connection, plan, prefix="gw")
    connection.execute("UPDATE goes SET a = 1")
    assert _published(connection)["gw_leaf"][0] == {"stays"}


def test_many_members_come_and_leave_in_small_batches(connection: Connection) -> None:
    connection.execute(
        """DO $$ BEGIN FOR n IN 1..120 LOOP
             EXECUTE format('CREATE TABLE many_%s PARTITION OF tree FOR VALUES FROM (%s) TO (%s)',
                            n, n * 10, n * 10 + 10);
           END LOOP; END $$"""
    )
    names = ", ".join(f"many_{n}" for n in range(1, 121))
    plan = _plan(connection, BY_ITSELF.replace("leaf", names))
    by_tree = _plan(connection, BY_TREE)
    ensure_publications(connection, by_tree, prefix="gw")
    assert len(add_partitions(connection, plan)[0]) == 3
    assert len(ensure_publications(connection, by_tree, prefix="gw")) == 3
    assert _published(connection)["gw_leaf"][0] == {"tree"}


def test_a_locked_member_that_is_read_otherwise_is_waited_for(
    connection: Connection, database: Database
) -> None:
    via_root = BY_TREE.replace(";", " WITH (publish_via_partition_root);", 1)
    ensure_publications(connection, _plan(connection, via_root), prefix="gw")
    plan = _plan(connection, BY_TREE)
    with database.connect() as other, other.transaction():
        other.execute("LOCK TABLE tree IN SHARE UPDATE EXCLUSIVE MODE")
        with pytest.raises(TransientError):
            ensure_publications(connection, plan, prefix="gw")
    ensure_publications(connection, plan, prefix="gw")
    published = _published(connection)
    assert (published["gw_root"][0], published["gw_leaf"][0]) == (set(), {"tree"})


def test_a_filtered_partition_of_another_owner_is_dropped_and_added_by_that_owner(
    connection: Connection, role: str, postgres_major: int
) -> None:
    if postgres_major < 15:
        pytest.skip("publications have row filters from 15 on")
    plan = _plan(connection, BY_ITSELF)
    connection.execute(f"SET ROLE {role}".encode())
    ensure_publications(connection, plan, prefix="gw")
    connection.execute("RESET ROLE")
    connection.execute(
        "ALTER PUBLICATION gw_leaf DROP TABLE leaf;"
        "ALTER PUBLICATION gw_leaf ADD TABLE leaf WHERE (a > 1);"
        "ALTER TABLE leaf OWNER TO CURRENT_USER"
    )
    connection.execute(f"SET ROLE {role}".encode())
    missing = missing_partitions(connection, plan)
    assert len(missing.by_owner) == 2
    connection.execute("RESET ROLE")
    connection.execute("\n".join(missing.by_owner).encode())
    connection.execute(f"SET ROLE {role}".encode())
    assert ensure_publications(connection, plan, prefix="gw") == []
    assert missing_partitions(connection, plan) == MissingPartitions()


class Racing(psycopg.Connection[Any]):
    """Connection that has a tree dropped between the looks at its partition and at itself."""

    looks = 0

    def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        if "pg_partition_ancestors" in str(query):
            self.looks += 1
            if self.looks == 3:
                with psycopg.connect(self.info.dsn, autocommit=True) as other:
                    other.execute("SET lock_timeout = '10s'")
                    other.execute("ALTER TABLE tree DETACH PARTITION leaf; DROP TABLE tree")
        return super().execute(query, *args, **options)


def test_a_tree_that_is_dropped_while_the_catalog_is_read_ends_no_plan(
    connection: Connection, database: Database
) -> None:
    text = BY_ITSELF.replace("tree, leaf", "leaf")
    with Racing.connect(database.dsn, autocommit=True) as racing:
        plan = _plan(racing, text)
    (copy,) = plan.copies
    assert plan.tables[copy.target_oid].ancestors == ()
    row = connection.execute("SELECT to_regclass('tree'), 'leaf'::regclass::oid::bigint").fetchone()
    assert row == (None, copy.target_oid)
