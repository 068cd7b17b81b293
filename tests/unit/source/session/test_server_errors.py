"""Errors of the server as errors of the gateway, by SQLSTATE."""

from __future__ import annotations

import pytest

from gateway.core.errors import (
    AccessError,
    FatalError,
    GatewayError,
    SlotBusyError,
    SlotError,
    TransientError,
)
from gateway.source.session.server_errors import classify_server_error


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
