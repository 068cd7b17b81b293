"""Formats of subscriptions, against the definitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Settings, choose_group, load_settings
from gateway.core.errors import ConfigError
from gateway.runtime.planning.plan import read_definitions

DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t;
CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;
CREATE SUBSCRIPTION other CONNECTION '' PUBLICATION p;
"""
FILE = """
[source]
dsn = "postgresql://u@h/d"
[definitions]
file = "replication.sql"
[kafka]
"bootstrap.servers" = "k:9092"
[registry]
url = "http://r:8081"
"""


def settings_of(folder: Path, lines: str) -> Settings:
    (folder / "replication.sql").write_text(DEFINITIONS)
    (folder / "pgsluice.toml").write_text(f"{FILE}{lines}")
    return load_settings(folder / "pgsluice.toml", {})


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ('[envelope.subscriptions]\ngone = "row"', "envelope.subscriptions"),
        ('[envelope]\nwithout_truncates = ["s", "gone"]', "envelope.without_truncates"),
    ],
)
def test_a_format_of_no_subscription_is_refused(tmp_path: Path, lines: str, key: str) -> None:
    with pytest.raises(ConfigError, match="'gone'") as caught:
        read_definitions(settings_of(tmp_path, lines))

    assert caught.value.key == key


@pytest.mark.parametrize("group", ["one", "two"])
def test_a_format_of_another_group_s_subscription_is_none_of_no_subscription(
    tmp_path: Path, group: str
) -> None:
    lines = """
[source.groups]
one = ["s"]
two = ["other"]
[envelope.subscriptions]
other = "debezium"
"""
    chosen = choose_group(settings_of(tmp_path, lines), group)

    assert len(read_definitions(chosen).subscriptions) == 1


def test_each_subscription_has_its_format(tmp_path: Path) -> None:
    envelope = settings_of(
        tmp_path,
        """
[envelope]
format = "debezium"
time_precision = "connect"
without_truncates = ["s"]
[envelope.subscriptions]
other = "row"
""",
    ).envelope

    s, other = envelope.of("s"), envelope.of("other")
    assert (s.format, s.connect_times, s.truncates) == ("debezium", True, False)
    assert (other.format, other.connect_times, other.truncates) == ("row", False, False)
    assert envelope.of("third").truncates
