"""Names of tables in a catalog follow from their folders, and every catalog can have them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from schemas.settings.consumer import ConsumerTable
from schemas.settings.fields import SettingError, declared
from schemas.settings.values import convert
from schemas.topic_names import topic_part
from spark_consumer.errors import SettingsError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.names import history_name, table_folder
from spark_consumer.settings import ConsumerSettings

CHOSEN = {"s.Public.Order lines": "sales.lines", "s.a.t__history": "x.y.z"}


@pytest.mark.parametrize(
    ("schema", "table", "name"),
    [
        ("public", "t1", "lake.s.public_t1"),
        ("Public", "Straße/1-x.y", "lake.s.public_stra_e_1_x_y"),
        ("Public", "Order lines", "lake.sales.lines"),
        ("a", "t__history", "lake.x.y.z"),
    ],
)
def test_a_name_follows_from_the_folder(schema: str, table: str, name: str) -> None:
    catalog = Catalog("lake", chosen=CHOSEN)
    known = f"{topic_part(schema)}.{topic_part(table)}"

    assert catalog.shown(table_folder("file:/a b/w", "s", known)) == name
    history = catalog.sql_name(table_folder("w/", "s", history_name(known)))
    assert history == ".".join(f"`{one}`" for one in f"{name}__history".split("."))
    assert re.fullmatch(r"[a-z0-9_.]+", name)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("catalog", "a.b", "names no catalog"),
        ("catalogs", {"s": "a-b"}, "names no catalog"),
        ("catalog_names", "{subscription}.t", "makes no names of tables"),
        ("catalog_names", "{table}", "makes no names of tables"),
        ("catalog_names", "{table.x}.{table}", "makes no names of tables"),
        ("catalog_tables", {"public.t": "a.b"}, "does not name a table"),
        ("catalog_tables", {"s.public.t": "b"}, "is no name for s.public.t"),
    ],
)
def test_settings_that_make_no_names_are_refused(key: str, value: object, why: str) -> None:
    with pytest.raises(SettingError, match=re.escape(why)):
        convert(f"consumer.{key}", value, declared(ConsumerTable)[key])


def test_a_subscription_can_have_another_catalog_or_none() -> None:
    table = ConsumerTable(catalog="lake", catalogs={"a": "other", "b": ""})

    assert [table.catalog_of(name) for name in "abc"] == ["other", None, "lake"]


def test_properties_which_may_be_secret_are_not_shown() -> None:
    assert "hidden" not in repr(Catalog("lake", properties={"jdbc.password": "hidden"}))


def test_a_name_is_of_one_table_in_each_catalog() -> None:
    same = ConsumerSettings(
        kafka={},
        registry_url="",
        subscriptions=("s", "r", "i"),
        catalog="lake",
        catalogs={"i": "other"},
        catalog_tables={"s.a.t": "x.T", "i.a.t": "x.t"},
    )

    found = [Catalog.of(same, name) for name in "si"]
    assert [one and one.chosen for one in found] == [{"s.a.t": "x.T"}, {"i.a.t": "x.t"}]
    twice = replace(same, catalog_tables={"s.a.t": "x.T", "r.a.t": "x.t"})
    with pytest.raises(SettingsError, match=r"s\.a\.t and r\.a\.t have the same name x\.t"):
        Catalog.of(twice, "s")
