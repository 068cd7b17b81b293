"""Definitions read from text: what the statements mean, where things stand, what is refused."""

from __future__ import annotations

import pytest

from gateway.core.errors import DefinitionError
from gateway.definitions.model import ALL_OPERATIONS, Operation, SubscriptionDefinition, TableClause
from gateway.definitions.sql.parser import parse_definitions

MANUAL = """-- les exemples du manuel, répétés
CREATE PUBLICATION p1 FOR TABLE t1 WHERE (a > 5 AND c = 'NSW');
CREATE PUBLICATION p2 FOR TABLE t1, t2 WHERE (e = 99);
CREATE PUBLICATION p3 FOR TABLE t2 WHERE (d = 10), t3 WHERE (g = 10);
CREATE SUBSCRIPTION s1 CONNECTION 'host=localhost' PUBLICATION p1, p2, p3;
"""


def _table(text: str) -> TableClause:
    (publication,) = parse_definitions(f"CREATE PUBLICATION p FOR TABLE {text}").publications
    (table,) = publication.tables
    return table


def test_the_manuals_publications_have_the_filters_that_it_shows() -> None:
    definitions = parse_definitions(MANUAL)
    assert {
        publication.name: [(table.name, table.where) for table in publication.tables]
        for publication in definitions.publications
    } == {
        "p1": [("t1", "a > 5 AND c = 'NSW'")],
        "p2": [("t1", None), ("t2", "e = 99")],
        "p3": [("t2", "d = 10"), ("t3", "g = 10")],
    }
    (subscription,) = definitions.subscriptions
    assert subscription.publications == ("p1", "p2", "p3")
    assert subscription.connection_given


def test_a_filter_is_the_slice_of_the_text_at_its_position() -> None:
    definitions = parse_definitions(MANUAL)
    for publication in definitions.publications:
        assert MANUAL[publication.position :].startswith(f"CREATE PUBLICATION {publication.name}")
        for table in publication.tables:
            assert MANUAL[table.position :].startswith(table.name)
            if table.where is not None:
                assert table.where_position is not None
                assert MANUAL[table.where_position :].startswith(table.where)


@pytest.mark.parametrize(
    ("written", "where"),
    [
        ("t WHERE (a = 1)", "a = 1"),
        ("t WHERE ((a = 1) OR (b = ')'))", "(a = 1) OR (b = ')')"),
        ("t WHERE ( /* ) */ a = 1 -- ) \n )", "a = 1"),
        ('t WHERE ("é)" = $$)$$)', '"é)" = $$)$$'),
        ("t (a, b) WHERE (a = 1)", "a = 1"),
        ("ONLY (s.t) (a) WHERE (f(a) = 1)", "f(a) = 1"),
        ('"where" WHERE ("WHERE" = 1)', '"WHERE" = 1'),
        ("t * WHERE (E'\\n' = c)", "E'\\n' = c"),
    ],
)
def test_a_filter_ends_at_its_own_bracket(written: str, where: str) -> None:
    assert _table(written).where == where


@pytest.mark.parametrize(
    ("written", "schema", "name", "only"),
    [
        ("t", None, "t", False),
        ("T *", None, "t", False),
        ('ONLY "S"."T"', "S", "T", True),
        ("ONLY (s.t)", "s", "t", True),
        ('U&"d\\0061t"', None, "dat", False),
    ],
)
def test_names_are_folded_as_postgresql_does(
    written: str, schema: str | None, name: str, only: bool
) -> None:
    table = _table(written)
    assert (table.schema, table.name, table.only) == (schema, name, only)


def test_tables_schemas_and_options_are_read_together() -> None:
    (publication,) = parse_definitions(
        'CREATE PUBLICATION p FOR TABLE a, TABLE b (x, "Y"), TABLES IN SCHEMA s, CURRENT_SCHEMA, s'
        " WITH (publish = ' insert , \"delete\"', publish_via_partition_root)"
    ).publications
    assert [table.columns for table in publication.tables] == [None, ("x", "Y")]
    assert publication.schemas == ("s", None)
    assert publication.operations == {Operation.INSERT, Operation.DELETE}
    assert publication.via_root


def test_a_publication_without_options_publishes_everything_by_leaf() -> None:
    (publication,) = parse_definitions("CREATE PUBLICATION p FOR ALL TABLES").publications
    assert publication.all_tables
    assert publication.operations == ALL_OPERATIONS
    assert not publication.via_root


def test_a_subscription_without_options_has_postgresqls_defaults() -> None:
    text = "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p"
    (subscription,) = parse_definitions(text).subscriptions
    # As in CREATE SUBSCRIPTION of PostgreSQL 18: streaming was off by default before.
    assert subscription == SubscriptionDefinition(
        "s",
        ("p",),
        copy_data=True,
        origin="any",
        binary=False,
        streaming="parallel",
        two_phase=False,
        connection_given=False,
        position=0,
    )


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("copy_data = off", "copy_data", False),
        ("copy_data = 0", "copy_data", False),
        ("binary", "binary", True),
        ("binary = 'On'", "binary", True),
        ("two_phase = true", "two_phase", True),
        ("streaming", "streaming", "on"),
        ("streaming = 1", "streaming", "on"),
        ("streaming = OFF", "streaming", "off"),
        ("streaming = Parallel", "streaming", "parallel"),
        ("origin = NONE", "origin", "none"),
        ("origin = 'any'", "origin", "any"),
    ],
)
def test_subscription_options_are_read_as_postgresql_reads_them(
    option: str, field: str, value: object
) -> None:
    text = f"CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH ({option})"
    (subscription,) = parse_definitions(text).subscriptions
    assert getattr(subscription, field) == value
    assert not subscription.connection_given


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("é; SELECT 1", 'syntax error at or near "é"', "é"),
        ("/* é */ SELECT 1", "only CREATE PUBLICATION and CREATE SUBSCRIPTION", "SELECT"),
        ("CREATE PUBLICATION é; DROP TABLE t", "only CREATE PUBLICATION", "DROP"),
        ("CREATE PUBLICATION é FOR TABLE t WHERE (é = )", 'syntax error at or near ")"', ")"),
        ("CREATE PUBLICATION é; CREATE PUBLICATION É", "", ""),
        (
            "CREATE SUBSCRIPTION é CONNECTION '' PUBLICATION p;"
            " CREATE  SUBSCRIPTION é CONNECTION '' PUBLICATION p",
            'subscription "é" already exists',
            "CREATE  S",
        ),
        (
            "CREATE SUBSCRIPTION é CONNECTION '' PUBLICATION p WITH (slot_name = NONE)",
            'subscription parameter "slot_name" is not supported',
            "slot_name",
        ),
        (
            "CREATE PUBLICATION é WITH (publish_generated_columns = virtual)",
            'invalid value for publication parameter "publish_generated_columns": "virtual"',
            "publish_generated_columns",
        ),
        ("CREATE PUBLICATION é FOR TABLE a.b.c", 'not implemented: "a.b.c"', "a.b.c"),
    ],
)
def test_faults_are_shown_where_they_are(text: str, message: str, at: str) -> None:
    if not message:
        assert len(parse_definitions(text).publications) == 2  # only ASCII letters are folded
        return
    with pytest.raises(DefinitionError, match=message.replace("(", r"\(").replace(")", r"\)")) as r:
        parse_definitions(text)
    assert r.value.position == text.index(at)


@pytest.mark.parametrize(
    ("options", "generated"),
    [
        ("", False),
        ("WITH (publish_generated_columns = none)", False),
        ("WITH (publish_generated_columns = stored)", True),
        ("WITH (publish_generated_columns = 'Stored')", True),
    ],
)
def test_generated_columns_are_published_where_the_option_says_so(
    options: str, generated: bool
) -> None:
    definitions = parse_definitions(f"CREATE PUBLICATION p {options}")

    assert definitions.publications[0].generated is generated


def test_an_empty_text_defines_nothing() -> None:
    definitions = parse_definitions("-- nothing\n;")
    assert definitions.publications == ()
    assert definitions.subscriptions == ()


def test_layout_comments_and_connections_do_not_change_the_fingerprint() -> None:
    other = MANUAL.replace(" FOR ", " /* here */\n\tfor  ").replace("host=localhost", "")
    assert parse_definitions(other).fingerprint == parse_definitions(MANUAL).fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [("'NSW'", "'nsw'"), ("p1, p2", "p2, p1"), ("e = 99", "e <> 99"), ("t1, t2", "ONLY t1, t2")],
)
def test_a_changed_meaning_changes_the_fingerprint(old: str, new: str) -> None:
    changed = parse_definitions(MANUAL.replace(old, new))
    assert changed.fingerprint != parse_definitions(MANUAL).fingerprint
