"""Authentication of DDL messages: proof that the source's event triggers wrote them. Pure.

Any role of a database may execute `pg_logical_emit_message`, under any prefix. A message is
accepted only with a MAC that can be computed only with the key of the event triggers:

    MAC = sha256(outer key || sha256(inner key || prefix || newline || body))

The two keys are independent and each as long as a block of the hash, which makes this NMAC. The
body names its transaction (64-bit xid) and a position just before the message, so that a copy of a
message is rejected in any other transaction. The xid in the stream has only 32 bits and recurs
after 4 billion transactions, but the position is too far away by then.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from gateway.core.errors import GatewayError
from gateway.core.lsn import Lsn, parse_lsn
from gateway.pgoutput.messages import LogicalMessage

__all__ = ["REASONS", "Key", "Reason", "UntrustedMessageError", "authenticate", "unreadable"]

Reason: TypeAlias = Literal["forged", "unreadable", "filter", "unexpected"]
REASONS: Final[tuple[Reason, ...]] = ("forged", "unreadable", "filter", "unexpected")
_MAC_LENGTH: Final = sha256().digest_size * 2
_XID_SPACE: Final = 1 << 32
_MAX_WAL_DISTANCE: Final = 1 << 36
"""Bytes of WAL: more than can be written between computing and emitting a message, and fewer than
in one wraparound of transaction ids."""


@dataclass(frozen=True, slots=True)
class Key:
    """Secret key shared by the event triggers and the gateway."""

    inner: bytes = field(repr=False)
    outer: bytes = field(repr=False)


class UntrustedMessageError(Exception):
    """Error of a DDL message that is ignored as a whole.

    Attributes:
        reason: ``forged``: the MAC is wrong, or was issued for another transaction.
            ``unreadable``: authentic, but not parseable. ``filter``: a filter in it is one that no
            publication can have. ``unexpected``: no event trigger could have written it.
    """

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason: Reason = reason


def unreadable(prefix: str, error: Exception) -> UntrustedMessageError:
    """Return the error to raise for a message that cannot be parsed."""
    return UntrustedMessageError(
        "unreadable", f"a logical message with prefix {prefix!r} cannot be parsed: {error}"
    )


def authenticate(message: LogicalMessage, xid: int | None, keys: Collection[Key]) -> bytes:
    """Return the body of a DDL message that the event triggers have written.

    Args:
        message: Message as it is in the stream.
        xid: 32-bit xid of the top-level transaction that contains it; None if none does.
        keys: Current and previous keys of the event triggers.

    Raises:
        UntrustedMessageError: the event triggers did not write it, or it cannot be parsed.
    """
    mac, body = message.content[:_MAC_LENGTH], message.content[_MAC_LENGTH + 1 :]
    text = message.prefix.encode() + b"\n" + body
    proven = len(mac) == _MAC_LENGTH and any(
        hmac.compare_digest(
            sha256(key.outer + sha256(key.inner + text).digest()).hexdigest().encode(), mac
        )
        for key in keys
    )
    if not proven:
        raise UntrustedMessageError("forged", "its MAC does not match the event triggers' key")
    try:
        fields: Any = json.loads(body)
        xid_text, lsn_text = fields["xid"], fields["lsn"]
        if not (isinstance(xid_text, str) and isinstance(lsn_text, str)):
            raise TypeError("xid and lsn are texts")
        written, began = int(xid_text), parse_lsn(lsn_text)
    except (ValueError, LookupError, TypeError, RecursionError, GatewayError) as error:
        raise unreadable(message.prefix, error) from None
    if xid is None or written % _XID_SPACE != xid % _XID_SPACE or not _is_near(began, message.lsn):
        raise UntrustedMessageError("forged", f"its MAC was issued for transaction {written}")
    return body


def _is_near(began: Lsn, lsn: Lsn) -> bool:
    return began <= lsn < began + _MAX_WAL_DISTANCE
