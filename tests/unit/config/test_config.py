"""The configuration: what is read, what wins, and that every error names its key."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path
from typing import get_args

import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.config import Settings, choose_group, each_group, load_settings
from gateway.core.dsn import Dsn
from gateway.core.errors import ConfigError
from schemas.settings.fields import SettingError, declared, tables
from schemas.settings.parser import find_file
from schemas.settings.values import convert
from spark_consumer.errors import SettingsError
from spark_consumer.settings_file import load_settings as load_consumer_settings

MINIMAL = {
    "source": ['dsn = "postgresql://u@h/d"'],
    "definitions": ['file = "replication.sql"'],
    "kafka": ['"bootstrap.servers" = "k:9092"'],
    "registry": ['url = "http://r:8081"'],
}


def load(folder: Path, extra: dict[str, list[str]] | None = None, **environment: str) -> Settings:
    lines: list[str] = []
    for table in {**MINIMAL, **(extra or {})}:
        lines += [f"[{table}]", *MINIMAL.get(table, []), *(extra or {}).get(table, [])]
    path = folder / "pgsluice.toml"
    path.write_text("\n".join(lines))
    return load_settings(path, environment)


def test_the_smallest_file_has_every_default(tmp_path: Path) -> None:
    settings = load(tmp_path)

    assert settings.source.slot == "pgsluice"
    assert settings.definitions.file == tmp_path / "replication.sql"
    assert settings.topics.partitions == 1
    assert settings.limits.shutdown_timeout_s == 10.0
    assert settings.kafka == {"bootstrap.servers": "k:9092"}
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("table", "line", "key"),
    [
        ("source", "slto = 'x'", "source.slto"),
        ("source", "slot = 'Has-Dash'", "source.slot"),
        ("source", "slot = ''", "source.slot"),
        ("source", f"slot = '{'x' * 51}'", "source.slot"),
        ("source", "slot = 7", "source.slot"),
        ("source", 'password_command = "echo \'x"', "source.password_command"),
        ("source", "password_command = ''", "source.password_command"),
        ("filters", "password_command = 'echo x'", "filters.password_command"),
        ("source", "connect_timeout_s = 0", "source.connect_timeout_s"),
        ("source", "receiver_timeout_s = -1", "source.receiver_timeout_s"),
        ("definitions", "missing_identity = 'ignore'", "definitions.missing_identity"),
        ("http", "listen = '9187'", "http.listen"),
        ("http", "listen = 'localhost:http'", "http.listen"),
        ("http", "listen = 'localhost:65536'", "http.listen"),
        ("log", "format = 'xml'", "log.format"),
        ("on_error", "value = 'skip'", "on_error.value"),
        ("on_error", "filters = 'stop'", "on_error.filters"),
        ("topics", "partitions = 0", "topics.partitions"),
        ("topics", "replication_factor = 0", "topics.replication_factor"),
        ("definitions", "watch_interval_s = -1", "definitions.watch_interval_s"),
        ("monitor", "max_lag_s = -0.1", "monitor.max_lag_s"),
        ("copy", "rows_per_second = -1", "copy.rows_per_second"),
        ("topics", "partitions = 'two'", "topics.partitions"),
        ("topics", "partitions = true", "topics.partitions"),
        ("topics", "tombstones = 'perhaps'", "topics.tombstones"),
        ("topics", "truncate = 'drop'", "topics.truncate"),
        ("topics", "names = 'x'", "topics.names"),
        ("types", "columns = {'s.t.c' = 'decimal'}", "types.columns.s.t.c"),
        ("envelope", "format = 'json'", "envelope.format"),
        ("envelope", "subscriptions = {s = 'json'}", "envelope.subscriptions.s"),
        ("envelope", "time_precision = 'nano'", "envelope.time_precision"),
        ("messages", "prefixes = [1]", "messages.prefixes"),
        ("limits", "max_batch_ms = -1", "limits.max_batch_ms"),
        ("limits", "retry_for_s = 'long'", "limits.retry_for_s"),
        ("limits", "progress_interval_s = nan", "limits.progress_interval_s"),
        ("limits", "retry_for_s = inf", "limits.retry_for_s"),
        ("gateway", "spool_directory = 1", "gateway.spool_directory"),
        ("kafka", "acks = ['all']", "kafka.acks"),
        ("kafak", "acks = 'all'", "[kafak]"),
        ("topics", "keys = {t = ['a']}", "topics.keys"),
        ("topics", "keys = {'public.t' = []}", "topics.keys"),
        ("topics", "partition_by = {'public.t' = ['a', 'a']}", "topics.partition_by"),
        ("topics", "partition_by = {'public.t' = 1}", "topics.partition_by.public.t"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(
    tmp_path: Path, table: str, line: str, key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {table: [line]})

    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("source", "source.dsn"),
        ("definitions", "definitions.file"),
        ("kafka", "kafka.bootstrap.servers"),
        ("registry", "registry.url"),
    ],
)
def test_what_is_required_is_named_with_its_variable(tmp_path: Path, table: str, key: str) -> None:
    path = tmp_path / "pgsluice.toml"
    path.write_text("\n".join(f"[{t}]\n{lines[0]}" for t, lines in MINIMAL.items() if t != table))

    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})

    assert caught.value.key == key
    name = key.partition(".")[2].upper().replace(".", "_")
    assert caught.value.hint is not None
    assert f"PGSLUICE_{table.upper()}__{name}" in caught.value.hint


def test_all_wrong_settings_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pgsluice.toml"
    path.write_text("[source]\nslto = 's'\n[limits]\nretry_for_s = 'long'\n[kafak]\nacks = 'all'\n")

    with pytest.raises(ConfigError, match="7 settings are wrong") as caught:
        load_settings(path, {})

    assert [line.partition(":")[0].strip() for line in str(caught.value).splitlines()[1:]] == [
        "[kafak]",
        "source.slto",
        "source.dsn",
        "definitions.file",
        "limits.retry_for_s",
        "kafka.bootstrap.servers",
        "registry.url",
    ]
    assert "PGSLUICE_SOURCE__DSN" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dsn = 'x'", "dsn: a value outside a table"),
        ("[source", "is not TOML"),
        ("\udcff", "is not TOML"),
    ],
)
def test_a_file_that_is_not_a_configuration_is_said(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "pgsluice.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(ConfigError, match=message):
        load_settings(path, {})


def test_a_missing_or_unreadable_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_settings(tmp_path / "absent.toml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path, {})


def test_the_environment_wins_and_has_every_type(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("u:p\n")

    settings = load(
        tmp_path,
        {"topics": ["partitions = 2"]},
        PGSLUICE_SOURCE__DSN="host=x dbname=y",
        PGSLUICE_TOPICS__PARTITIONS="4",
        PGSLUICE_TOPICS__TOMBSTONES="off",
        PGSLUICE_LIMITS__RETRY_FOR_S="1.5",
        PGSLUICE_MESSAGES__PREFIXES="a, b",
        PGSLUICE_KAFKA__BOOTSTRAP_SERVERS="other:9092",
        PGSLUICE_KAFKA__SASL_PASSWORD="hidden",
        PGSLUICE_REGISTRY__BASIC_AUTH_USER_INFO_FILE=str(tmp_path / "secret"),
        PGSLUICE_DEFINITIONS__FILE="here.sql",
        UNRELATED__X="y",
    )

    assert conninfo_to_dict(settings.source.dsn).items() >= {"host": "x", "dbname": "y"}.items()
    assert (settings.topics.partitions, settings.topics.tombstones) == (4, False)
    assert settings.limits.retry_for_s == 1.5
    assert settings.messages.prefixes == ("a", "b")
    assert settings.kafka == {"bootstrap.servers": "other:9092", "sasl.password": "hidden"}
    assert settings.registry["basic.auth.user.info"] == "u:p"
    assert settings.definitions.file == Path("here.sql")
    assert settings.warnings == ()


@pytest.mark.parametrize(
    "variable",
    [
        "PGSLUICE_SOURCE__DNS",
        "PGSLUICE_SORCE__DSN",
        "PGSLUICE_SOURCE__DSN_FILE",
        "PGSLUICE_KAFKA__SASL_PASSWORD_FILE",
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, None, **{variable: str(tmp_path / "absent")})

    assert caught.value.key == variable


def test_a_dotted_kafka_key_needs_no_quotes(tmp_path: Path) -> None:
    settings = load(tmp_path, {"kafka": ["linger.ms = 7", "enable.foo = true"]})

    assert settings.kafka["linger.ms"] == "7"
    assert settings.kafka["enable.foo"] == "true"


@pytest.mark.parametrize(
    ("table", "line", "variable"),
    [
        ("kafka", '"sasl.password" = "s3cret"', "PGSLUICE_KAFKA__SASL_PASSWORD_FILE"),
        (
            "registry",
            '"basic.auth.user.info" = "u:s3cret"',
            "PGSLUICE_REGISTRY__BASIC_AUTH_USER_INFO_FILE",
        ),
    ],
)
def test_a_secret_in_the_file_is_warned_of_but_never_shown(
    tmp_path: Path, table: str, line: str, variable: str
) -> None:
    (warning,) = load(tmp_path, {table: [line]}).warnings

    assert variable in warning
    assert "s3cret" not in warning


def test_a_password_in_the_dsn_is_warned_of_and_a_broken_dsn_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "pgsluice.toml"
    tables = {**MINIMAL, "source": ['dsn = "postgresql://u:s3cret@h/d"']}
    path.write_text("\n".join(f"[{t}]\n{lines[0]}" for t, lines in tables.items()))
    (warning,) = load_settings(path, {}).warnings
    assert "PGSLUICE_SOURCE__DSN_FILE" in warning and "s3cret" not in warning

    path.write_text(path.read_text().replace("postgresql://u:s3cret@h/d", "u s3cret"))
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    assert caught.value.key == "source.dsn"
    assert "s3cret" not in str(caught.value)


def test_a_password_command_stays_with_its_connection_string_and_is_the_only_password(
    tmp_path: Path,
) -> None:
    lines = {
        "source": ["password_command = 'echo x'"],
        "filters": ["dsn = 'host=f'", "password_command = 'echo y'"],
    }
    settings = load(tmp_path, lines)

    assert Dsn.command_of(settings.source.dsn) == "echo x"
    assert Dsn.command_of(settings.filters.dsn or "") == "echo y"
    assert Dsn.command_of(load(tmp_path).source.dsn) is None
    for table in ("source", "filters"):
        variable = f"PGSLUICE_{table.upper()}__DSN"
        with pytest.raises(ConfigError, match=rf"{table}\.password_command: ") as caught:
            load(tmp_path, lines, **{variable: "host=h password=s3cret"})
        assert "s3cret" not in str(caught.value)


def test_paths_are_relative_to_the_file_but_uris_stay(tmp_path: Path) -> None:
    settings = load(
        tmp_path, {"consumer": ['warehouse = "s3a://bucket/w"', 'checkpoint = "/abs/c"']}
    )

    assert settings.consumer.warehouse == "s3a://bucket/w"
    assert settings.consumer.checkpoint == "/abs/c"
    assert load(tmp_path).consumer.checkpoint == str(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("dsn", "timeout"),
    [("postgresql://u:p%40w@h/d", "7"), ("host=h password=p@w connect_timeout=3", "3")],
)
def test_the_connect_timeout_is_in_the_connection_string_unless_it_has_its_own(
    tmp_path: Path, dsn: str, timeout: str
) -> None:
    settings = load(tmp_path, {"source": ["connect_timeout_s = 7"]}, PGSLUICE_SOURCE__DSN=dsn)

    found = conninfo_to_dict(settings.source.dsn)
    assert (found["host"], found["password"]) == ("h", "p@w")
    assert found["connect_timeout"] == timeout


@pytest.mark.parametrize(("line", "value"), [([], None), (["receiver_timeout_s = 0"], 0.0)])
def test_the_receiver_timeout_may_be_off_and_may_be_the_servers(
    tmp_path: Path, line: list[str], value: float | None
) -> None:
    assert load(tmp_path, {"source": line}).source.receiver_timeout_s == value


def test_on_error_says_what_is_quarantined(tmp_path: Path) -> None:
    settings = load(
        tmp_path, {"on_error": ["size = 'quarantine'"]}, PGSLUICE_ON_ERROR__SCHEMA="quarantine"
    )

    assert settings.on_error.quarantined == {"size", "schema"}
    assert load(tmp_path).on_error.quarantined == frozenset()


def test_a_group_has_a_slot_of_its_own(tmp_path: Path) -> None:
    groups = {"source.groups": ['fast = ["a", "b"]', 'rest = ["c"]']}

    settings = load(tmp_path, groups)

    assert settings.source.groups == {"fast": ("a", "b"), "rest": ("c",)}
    each = each_group(settings)
    assert [one.source.slot for one in each] == ["pgsluice_fast", "pgsluice_rest"]
    assert [one.group for one in each] == ["fast", "rest"]
    assert each == [choose_group(settings, name) for name in ("fast", "rest")]
    assert each_group(each[0]) == [each[0]]


def test_a_group_whose_slot_no_server_would_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"source.groups.A-1: .*\n.*pgsluice_A-1"):
        load(tmp_path, {"source.groups": ['A-1 = ["a"]']})


def test_a_configuration_without_groups_takes_no_group(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no group 'a'"):
        choose_group(load(tmp_path), "a")


def test_the_configuration_is_looked_for_where_it_usually_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, system = tmp_path / "pgsluice.toml", tmp_path / "etc" / "pgsluice.toml"
    system.parent.mkdir()

    with pytest.raises(SettingError, match=r"there is no configuration file: neither .* nor .*etc"):
        find_file(None, {}, here=here, system=system)
    system.touch()
    assert find_file(None, {}, here=here, system=system) == system
    here.touch()
    assert find_file(None, {}, here=here, system=system) == here
    named = {"PGSLUICE_CONFIG": "other.toml"}
    assert find_file(None, named, here=here, system=system) == Path("other.toml")
    assert find_file(Path("given.toml"), named, here=here) == Path("given.toml")

    here.write_text("[")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^pgsluice.toml is not TOML"):
        load_settings(None, {})
    with pytest.raises(SettingsError, match=r"^pgsluice.toml is not TOML"):
        load_consumer_settings(None, {})


MISTAKES = [
    ("warehose = 'x'", {}, "consumer.warehose: unknown key; did you mean 'warehouse'?"),
    ("parallel_tables = 'many'", {}, "consumer.parallel_tables: must be a whole number"),
    ("parallel_tables = 0", {}, "consumer.parallel_tables: must be at least 1"),
    ("views = ['trino']", {}, "consumer.views: must be one of 'spark', 'duckdb'"),
    ("keep_hours = -1", {}, "consumer.keep_hours: must be at least 0"),
    ("keep_hours = 1e300", {}, "consumer.keep_hours: must be at most 1,000,000,000"),
    ("shutdown_timeout_s = 0", {}, "consumer.shutdown_timeout_s: must be greater than 0"),
    ("subscriptions = 7", {}, "consumer.subscriptions: must be a list of texts"),
    ("metrics_listen = '9187'", {}, "consumer.metrics_listen: not host:port"),
    ("[consmer]", {}, "[consmer]: unknown table; did you mean 'consumer'?"),
    ("[kafka.acks]\nx = ['all']", {}, "kafka.acks.x: must be a text, a number or true/false"),
    ("[kafka.a]\nb = 1\n[kafka]\n'a.b' = 2", {}, "kafka.a.b: is given twice, in two spellings"),
    ("", {"CONSMER__X": "y"}, "PGSLUICE_CONSMER__X: unknown table; did you mean 'consumer'?"),
    ("", {"CONSUMER__X": "y"}, "PGSLUICE_CONSUMER__X: unknown key; known are catalog, "),
    ("", {"CONSUMER__SPARK": "y"}, "consumer.spark: must be a table, not str"),
    ("", {"KAFKA__A_FILE": "/absent"}, "PGSLUICE_KAFKA__A_FILE: the file cannot be read: No such"),
    (
        "",
        {"KAFKA__A": "x", "KAFKA__A_FILE": __file__},
        "PGSLUICE_KAFKA__A_FILE: conflicts with PGSLUICE_KAFKA__A: set one",
    ),
    ("", {"REGISTRY__URL": ""}, "registry.url: is required"),
]


@pytest.mark.parametrize(("lines", "environment", "message"), MISTAKES)
def test_both_programs_say_the_same_of_the_same_mistake(
    tmp_path: Path, lines: str, environment: dict[str, str], message: str
) -> None:
    tables = [f"[{table}]\n{line[0]}\n" for table, line in MINIMAL.items()]
    if "[kafka]" in lines:
        tables = [table for table in tables if not table.startswith("[kafka]")]
        lines += "\n" + MINIMAL["kafka"][0]
    path = tmp_path / "pgsluice.toml"
    path.write_text("".join(tables) + f"[consumer]\n{lines}\n")
    variables = {f"PGSLUICE_{name}": value for name, value in environment.items()}

    with pytest.raises(ConfigError) as gateway:
        load_settings(path, variables)
    with pytest.raises(SettingsError) as job:
        load_consumer_settings(path, variables)

    assert str(gateway.value).startswith(message)
    assert str(gateway.value) == str(job.value)


def test_every_number_has_a_range_and_a_default_that_keeps_it() -> None:
    for name, table in tables(Settings).items():
        for key, setting in declared(table).items():
            if int not in (setting.type, *get_args(setting.type)) and float not in (
                setting.type,
                *get_args(setting.type),
            ):
                continue
            rule = setting.rule
            assert rule.check is not None or {rule.least, rule.above} != {None}, f"{name}.{key}"
            if setting.default not in (MISSING, None):
                assert convert(key, setting.default, setting) == setting.default


def test_a_dotted_key_without_quotes_is_the_property_that_is_required(tmp_path: Path) -> None:
    path = tmp_path / "pgsluice.toml"
    tables = {**MINIMAL, "kafka": ['bootstrap.servers = "k:9092"']}
    path.write_text("\n".join(f"[{t}]\n{lines[0]}" for t, lines in tables.items()))

    assert load_settings(path, {}).kafka == {"bootstrap.servers": "k:9092"}
    assert load_consumer_settings(path, {}).kafka == {"bootstrap.servers": "k:9092"}
