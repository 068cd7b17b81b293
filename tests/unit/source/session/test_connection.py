"""Parameters of connections: options, keepalives, names and replication."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.source.session.connection import SESSION_SETTINGS, connection_string


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
