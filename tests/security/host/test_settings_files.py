"""Files that settings name, and what they hold: endless, no text, or larger than can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.config import load_settings
from gateway.core.errors import ConfigError
from gateway.runtime.planning.plan import read_definitions
from schemas.settings.fields import declared, tables
from schemas.settings.tables import Settings
from spark_consumer.errors import SettingsError
from spark_consumer.settings import java_properties
from spark_consumer.settings_file import load_settings as load_consumer_settings

BASE = """
[source]
dsn = "host=h"
[definitions]
file = "replication.sql"
[kafka]
"bootstrap.servers" = "k:9092"
[registry]
url = "http://r:8081"
[consumer]
subscriptions = ["s"]
"""
DSN_FILE = "PGSLUICE_SOURCE__DSN_FILE"


def written(folder: Path, text: str) -> Path:
    path = folder / "pgsluice.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"h" * 1_048_577, "more than 1,048,576 bytes"),
        (b"host=h password=\xff-hunter2", "not text in UTF-8"),
        (b"host=h\0 password=hunter2", "a null character"),
    ],
)
def test_a_file_of_a_secret_that_is_none_is_refused_without_showing_it(
    tmp_path: Path, content: bytes, said: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content)

    with pytest.raises(ConfigError, match=said) as refused:
        load_settings(written(tmp_path, BASE), {DSN_FILE: str(secret)})

    assert refused.value.key == DSN_FILE
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None or "hunter2" not in str(refused.value.__cause__)


def test_the_end_of_a_line_as_windows_has_it_is_no_part_of_a_secret(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"p\xc3\xa9\r\n")

    found = load_settings(
        written(tmp_path, BASE), {"PGSLUICE_KAFKA__SASL_PASSWORD_FILE": str(secret)}
    )

    assert found.kafka["sasl.password"] == "pé"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[limits]\nx = " + "[" * 100_000, "nested too deeply"),
        ("[limits]\nx = " + "{a=" * 5_000, "nested too deeply"),
        ("[" + ".".join(["log", *"a" * 3_000]) + "]\nb = 1", "nested too deeply"),
        ("[limits]\nx = " + "9" * 5_000, "is not TOML"),
        ('[gateway]\nname = "a\\u0000b"', "null character"),
    ],
)
def test_a_configuration_that_no_parser_takes_is_said(tmp_path: Path, more: str, said: str) -> None:
    path = written(tmp_path, BASE + more)

    with pytest.raises(ConfigError, match=said):
        load_settings(path, {})
    with pytest.raises(SettingsError, match=said):
        load_consumer_settings(path, {})


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "device", "folder", "large"])
def test_a_file_that_is_none_or_too_large_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    place = odd_file(tmp_path, kind)
    said = "more than 16,777,216 bytes" if kind == "large" else "not an ordinary file"
    path = written(tmp_path, BASE.replace("replication.sql", str(place)))

    with pytest.raises(ConfigError, match=said) as refused:
        read_definitions(load_settings(path, {}))
    assert refused.value.key == "definitions.file"
    with pytest.raises(ConfigError, match=said):
        load_settings(place, {})
    with pytest.raises(SettingsError, match=said):
        load_consumer_settings(place, {})
    if kind != "large":
        with pytest.raises(ConfigError, match=said):
            load_settings(path, {DSN_FILE: str(place)})
        text = BASE.replace("[registry]", f'"ssl.ca.location" = "{place}"\n[registry]')
        with pytest.raises(SettingsError, match=rf"ssl\.ca\.location .* {said}"):
            java_properties(load_consumer_settings(written(tmp_path, text), {}))


def odd_file(folder: Path, kind: str) -> Path:
    """A file that is not to be read."""
    if kind in ("device", "folder"):
        return Path("/dev/zero") if kind == "device" else folder
    place = folder / "odd"
    if kind == "large":
        with place.open("wb") as file:
            file.truncate((16 << 20) + 1)
        return place
    os.mkfifo(place)
    link = folder / "link"
    link.symlink_to(place)
    return link if kind.startswith("link") else place


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="null character"):
        load_settings(Path("a\0b"), {})


@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400])
def test_a_number_that_no_float_holds_is_named_by_its_key(tmp_path: Path, number: str) -> None:
    path = written(tmp_path, BASE)
    for table, kind in tables(Settings).items():
        for key, one in declared(kind).items():
            if one.type not in (int, float, int | None, float | None):
                continue
            text = BASE.replace(f"[{table}]", f"[{table}]\n{key} = {number}")
            if text == BASE:
                text += f"[{table}]\n{key} = {number}\n"
            with pytest.raises(ConfigError) as refused:
                load_settings(written(tmp_path, text), {})
            assert refused.value.key == f"{table}.{key}"
            written(tmp_path, BASE)
            with pytest.raises(ConfigError) as refused:
                load_settings(path, {f"PGSLUICE_{table}__{key}".upper(): number})
            assert refused.value.key == f"{table}.{key}"


def test_a_certificate_that_is_no_text_is_named(tmp_path: Path) -> None:
    key = tmp_path / "ca.pem"
    key.write_bytes(b"\xff\xfe")
    text = BASE.replace("[registry]", f'"ssl.ca.location" = "{key}"\n[registry]')

    with pytest.raises(SettingsError, match=r"ssl\.ca\.location .* not in ASCII"):
        java_properties(load_consumer_settings(written(tmp_path, text), {}))
