"""What is said to the server at connecting, and what its refusals become."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.core.errors import (
    AccessError,
    FatalError,
    GatewayError,
    SlotBusyError,
    SlotError,
    TransientError,
)
from gateway.source.session.connection import (
    SESSION_SETTINGS,
    classify_server_error,
    connection_string,
)


def parameters(dsn: str, *, replication: bool = False) -> dict[str, object]:
    return dict(
        conninfo_to_dict(connection_string(dsn, application_name="x", replication=replication))
    )


def test_own_options_stay_and_ours_come_after_them() -> None:
    options = parameters("host=h options='-c work_mem=1MB -c DateStyle=SQL'")["options"]

    assert isinstance(options, str)
    assert options.startswith("-c work_mem=1MB -c DateStyle=SQL ")
    assert options.endswith(" ".join(f"-c {k}={v}" for k, v in SESSION_SETTINGS.items()))


def test_own_keepalives_and_name_win_and_the_encoding_does_not() -> None:
    found = parameters("host=h keepalives_idle=7 application_name=mine client_encoding=LATIN1")

    assert found["keepalives_idle"] == "7"
    assert found["application_name"] == "mine"
    assert found["client_encoding"] == "UTF8"
    assert found["connect_timeout"] == "10"


@pytest.mark.parametrize(("replication", "expected"), [(True, "database"), (False, None)])
def test_only_a_replication_connection_asks_for_a_walsender(
    replication: bool, expected: str | None
) -> None:
    found = parameters("host=h", replication=replication)

    assert found.get("replication") == expected


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        (None, TransientError),
        ("08006", TransientError),
        ("40001", TransientError),
        ("53300", TransientError),
        ("55006", SlotBusyError),
        ("55P03", TransientError),
        ("57P01", TransientError),
        ("57014", TransientError),
        ("53400", TransientError),  # configuration_limit_exceeded, of insufficient resources
        ("58030", TransientError),  # io_error, outside PostgreSQL
        ("42725", FatalError),  # ambiguous_function, of access rules and syntax
        ("42501", AccessError),
        ("42P01", FatalError),
        ("58P01", FatalError),
        ("XX000", FatalError),
    ],
)
def test_sqlstate_decides_whether_it_may_pass(
    sqlstate: str | None, kind: type[GatewayError]
) -> None:
    assert type(classify_server_error(sqlstate, "text", doing="reading")) is kind


@pytest.mark.parametrize(
    ("text", "kind", "hint"),
    [
        (
            "requested WAL segment 0000000100000000000000A1 has already been removed",
            SlotError,
            "removed WAL",
        ),
        ("das angeforderte WAL-Segment 0000000100000000000000A1", SlotError, "removed WAL"),
        (
            'could not access file "$libdir/postgis-3": No such file or directory',
            FatalError,
            "library",
        ),
        ('could not access file "/opt/pg/lib/x.so": No such file', FatalError, "library"),
        ('could not open file "base/5/16384": No such file or directory', FatalError, "a file"),
    ],
)
def test_a_file_that_is_missing_is_the_slot_s_only_where_it_is_of_the_wal(
    text: str, kind: type[GatewayError], hint: str
) -> None:
    error = classify_server_error("58P01", text, doing="reading")

    assert type(error) is kind
    assert hint in (error.hint or "")


def test_text_of_a_data_exception_is_not_shown() -> None:
    error = classify_server_error("22P02", 'invalid input syntax: "secret"', doing="copying t")

    assert "secret" not in str(error)
    assert "22P02" in str(error)
