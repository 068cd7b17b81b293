"""Kafka clients that authenticate by tokens of a plugin; see `schemas.kafka_tokens`.

confluent-kafka lets the construction of such a client take a second or more. Admin clients are
therefore kept, since the loop needs one every minute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from gateway.core.errors import ConfigError, TransientError
from gateway.sink.clients.client_errors import ErrorCallback
from schemas.kafka_tokens import PLUGIN, TokenError, with_tokens

__all__ = ["kept_admin", "token_failure", "with_callback"]

_OnError: TypeAlias = Callable[[KafkaError], None]
_Construct: TypeAlias = Callable[
    [Callable[[dict[str, Any]], AdminClient], Mapping[str, Any], _OnError], AdminClient
]


class _Admin:
    """An admin client, whose errors go to the function that used it last."""

    def __init__(self, properties: Mapping[str, Any], construct: _Construct) -> None:
        self.errors: ErrorCallback | None = None
        self.client = construct(AdminClient, with_callback(properties), self._report)

    def _report(self, error: KafkaError) -> None:
        if self.errors is not None:
            self.errors(error)


_ADMINS: Final[dict[frozenset[tuple[str, Any]], _Admin]] = {}
_GUARD: Final = threading.Lock()


def with_callback(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties in which the plugin's callback takes the place of its name.

    Raises:
        ConfigError: the plugin cannot be loaded, or what it returns is no token.
        TransientError: it has no token now.
    """
    try:
        return with_tokens(properties)
    except TokenError as error:
        if error.may_pass:
            raise TransientError(f"no token for Kafka: {error.message}", hint=error.hint) from None
        raise ConfigError(error.message, key=f"kafka.{PLUGIN}", hint=error.hint) from None


def kept_admin(
    properties: Mapping[str, Any], errors: ErrorCallback | None, construct: _Construct
) -> AdminClient:
    """Return the admin client of these properties; `construct` makes it once.

    Raises:
        ConfigError, TransientError: as `with_callback` and `construct`.
    """
    key = frozenset(properties.items())
    with _GUARD:
        admin = _ADMINS.get(key)
        if admin is None:
            admin = _ADMINS[key] = _Admin(properties, construct)
        admin.errors = errors
        return admin.client


def token_failure(error: Exception) -> TransientError | None:
    """Return the error for a client that got no token while it was constructed."""
    kafka_error = error.args[0] if isinstance(error, KafkaException) else None
    if isinstance(kafka_error, KafkaError) and (
        kafka_error.code() == KafkaError.SASL_AUTHENTICATION_FAILED
    ):
        return TransientError(
            "no token for Kafka: the client has not accepted that of the plugin in time",
            hint=f'call the plugin of "{PLUGIN}" in [kafka] by hand',
        )
    return None
