"""What the server says while a table is copied, and what to do about it."""

from __future__ import annotations

import psycopg
import pytest

from gateway.core.errors import TransientError
from gateway.definitions.model import Table
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.source.copy.errors import ConditionError, TableUnreadable, copy_error
from gateway.source.session.server_errors import is_text_too_long

TABLE = Table(1, "public", "t", "r", (), ReplicaIdentity.DEFAULT, (), ())


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('could not open file "base/5/16384": No such file or directory', "a file of the table"),
        (
            'could not open file "pg_tblspc/9/PG_17_202406281/5/16384.1": No such file',
            "a file of the table",
        ),
        ('could not access file "$libdir/postgis-3": No such file or directory', "library"),
    ],
)
def test_a_missing_file_is_the_table_s_or_a_library_s(text: str, hint: str) -> None:
    error = copy_error(psycopg.errors.UndefinedFile(text), TABLE, conditions=False)

    assert isinstance(error, TableUnreadable)
    assert hint in (error.hint or "")


def test_row_security_is_known_by_what_the_server_says_of_it_and_by_no_name() -> None:
    affected = 'query would be affected by row-level security policy for table "t"'
    denied = "permission denied for table row-level security"

    by_row_security, by_name = (
        copy_error(psycopg.errors.InsufficientPrivilege(text), TABLE, conditions=False)
        for text in (affected, denied)
    )

    assert by_row_security.cause == "bypass_rls"
    assert by_name.cause != "bypass_rls" and "BYPASSRLS" not in str(by_name)


def test_a_text_that_is_too_long_is_the_condition_s_fault() -> None:
    error = psycopg.errors.OutOfMemory("out of memory")

    assert isinstance(copy_error(error, TABLE, conditions=True), ConditionError)
    assert isinstance(copy_error(error, TABLE, conditions=False), TransientError)


def test_an_error_of_a_condition_quotes_no_value_of_a_masked_table() -> None:
    error = psycopg.errors.InvalidTextRepresentation('invalid input syntax: "secret"')

    plain = copy_error(error, TABLE, conditions=True)
    masked = copy_error(error, TABLE, conditions=True, masked=True)

    assert plain.message.endswith('invalid input syntax: "secret"')
    assert masked.message == "copying public.t: the condition on its rows fails: SQLSTATE 22P02"


@pytest.mark.parametrize(
    "kind",
    [
        psycopg.errors.UndefinedTable,
        psycopg.errors.UndefinedColumn,
        psycopg.errors.ConfigurationLimitExceeded,
        psycopg.errors.ObjectNotInPrerequisiteState,
        psycopg.errors.DataCorrupted,
    ],
)
def test_no_error_of_a_copy_quotes_a_value_of_a_masked_table(kind: type[psycopg.Error]) -> None:
    error = kind('restricted: "secret"')

    assert "secret" in copy_error(error, TABLE, conditions=False).message
    masked = copy_error(error, TABLE, conditions=False, masked=True)
    assert "secret" not in masked.message
    assert f"SQLSTATE {error.sqlstate}" in masked.message


@pytest.mark.parametrize(
    ("sqlstate", "detail", "hint", "expected"),
    [
        ("53200", None, None, True),
        ("53200", "Failed on request of size 1024.", None, False),
        ("53200", None, "You might need to increase max_locks_per_transaction.", False),
        ("53100", None, None, False),
        (None, None, None, False),
    ],
)
def test_a_shortage_is_told_from_a_text_that_is_too_long(
    sqlstate: str | None, detail: str | None, hint: str | None, expected: bool
) -> None:
    assert is_text_too_long(sqlstate, detail=detail, hint=hint) is expected
