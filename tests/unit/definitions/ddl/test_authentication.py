"""A DDL message is believed with the code of its key, in its own transaction and place alone."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from gateway.core.lsn import Lsn
from gateway.definitions.ddl.authentication import Key, UntrustedMessageError, authenticate
from gateway.pgoutput.messages import LogicalMessage

KEY = Key(b"i" * 64, b"o" * 64)
OTHER = Key(b"x" * 64, b"o" * 64)
BODY = json.dumps({"xid": str((1 << 32) + 7), "lsn": "0/100", "tables": [1]}).encode()


def message(
    body: bytes = BODY, *, key: Key = KEY, prefix: str = "p", under: str = "p", lsn: int = 0x100
) -> LogicalMessage:
    text = prefix.encode() + b"\n" + body
    code = sha256(key.outer + sha256(key.inner + text).digest()).hexdigest().encode()
    return LogicalMessage(True, Lsn(lsn), under, code + b" " + body)


def test_its_code_proves_it() -> None:
    assert authenticate(message(), 7, [OTHER, KEY]) == BODY


@pytest.mark.parametrize(
    ("forged", "xid"),
    [
        (message(key=OTHER), 7),
        (message(under="q"), 7),
        (message(), 8),
        (message(), None),
        (message(lsn=0xFF), 7),
        (message(lsn=0x100 + (1 << 36)), 7),
        (LogicalMessage(True, Lsn(0x100), "p", b""), 7),
        (LogicalMessage(True, Lsn(0x100), "p", b"0" * 64 + b" " + BODY), 7),
        (LogicalMessage(True, Lsn(0x100), "p", message().content + b" "), 7),
    ],
)
def test_anything_else_is_forged(forged: LogicalMessage, xid: int | None) -> None:
    with pytest.raises(UntrustedMessageError) as refused:
        authenticate(forged, xid, [KEY])
    assert refused.value.reason == "forged"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"xid": 1, "lsn": "no"}', b"[" * 100_000])
def test_one_that_does_not_read_is_said_to_be_that(body: bytes) -> None:
    with pytest.raises(UntrustedMessageError) as refused:
        authenticate(message(body), 7, [KEY])
    assert refused.value.reason == "unreadable"


def test_no_key_is_shown() -> None:
    assert repr(KEY) == "Key()"
