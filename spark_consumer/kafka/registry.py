"""Writer schemas from the schema registry, on the driver, kept in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final, Protocol

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from schemas.registry_trust import without_unused_authorities
from schemas.settings.consumer import JsonMode
from spark_consumer.errors import AccessError, ConsumerError, ContractError, TransientConsumerError
from spark_consumer.kafka.schema_contract import parsed_schema
from spark_consumer.spark.failures import TableTransientError

__all__ = ["Registry", "Schemas"]

_OK: Final = 200
_NOT_FOUND: Final = 404
_NO_ACCESS: Final = (401, 403)
_PASSING: Final = (408, 429)
_MOST_CHARACTERS: Final = 32 * 1024 * 1024
"""Length of all cached schemas; parsed, they need up to 25 times as many bytes."""
_OVERHEAD: Final = 1024
"""Overhead of a cached schema, in characters."""
_NO_SCHEMA: Final = (ValueError, LookupError, TypeError, AttributeError)
"""Exceptions that the client raises for an answer that is not a schema in JSON."""


class Schemas(Protocol):
    """Source of writer schemas."""

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return the Avro schema of an id.

        Raises:
            ContractError: there is no such schema, or it is not Avro.
            TableTransientError: the registry fails for this schema, but not for others.
            AccessError: the registry refuses the user.
            TransientConsumerError: the registry does not answer.
        """


class Registry:
    """A schema registry with Confluent's API.

    The schema of an ID never changes, so it is cached; the cache is cleared when it gets too
    large. Refused schemas are not cached: once corrected, the job continues.

    Args:
        url: Base URL.
        options: Further properties of confluent-kafka's client.
        json_mode: Type of tables' columns that are json or jsonb in PostgreSQL.
    """

    def __init__(self, url: str, options: Mapping[str, str], json_mode: JsonMode = "text") -> None:
        self._json_mode = json_mode
        self._properties = without_unused_authorities({"url": url, **options})
        self._client = SchemaRegistryClient(self._properties)
        self._known: dict[int, dict[str, Any]] = {}
        self._characters = 0

    def close(self) -> None:
        """Close the connections that are kept open between requests."""
        self._client.close()

    def schema(self, schema_id: int) -> dict[str, Any]:
        """See `Schemas.schema`."""
        # Workers may call this concurrently: each uses its own result.
        found = self._known.get(schema_id)
        if found is None:
            found, length = self._fetch(schema_id)
            if self._characters + length > _MOST_CHARACTERS:
                self._known.clear()
                self._characters = 0
            self._known[schema_id] = found
            self._characters += length
        return found

    def _fetch(self, schema_id: int) -> tuple[dict[str, Any], int]:
        """Return a schema, and its share of `_MOST_CHARACTERS`."""
        try:
            found = self._client.get_schema(schema_id)
        except Exception as error:  # the client lets its HTTP library's own errors through
            raise self._failure(schema_id, error) from error
        try:
            if not isinstance(found.schema_str, str):
                raise _broken(schema_id, "its answer is no schema")
            if found.schema_type != "AVRO":
                raise _broken(schema_id, "it is not Avro")
            parsed = parsed_schema(schema_id, found.schema_str, self._json_mode)
            return parsed, len(found.schema_str) + _OVERHEAD
        finally:
            # The client would keep its own copy, of what is refused as well.
            self._client.clear_caches()  # type: ignore[no-untyped-call]

    def _failure(self, schema_id: int, error: Exception) -> ConsumerError:
        """Classify a failed request for a schema: of every table, unless others are answered."""
        status = error.http_status_code if isinstance(error, SchemaRegistryError) else None
        if status == _NOT_FOUND:
            return ContractError(
                f"the schema registry has no schema with id {schema_id}",
                hint="is [registry] url the registry that the gateway writes to?",
            )
        others = self._status_of_others(schema_id)
        if others == _OK:
            if status is None and isinstance(error, _NO_SCHEMA):
                return _broken(schema_id, "its answer is no schema")
            why = type(error).__name__ if status is None else f"status {status}"
            if status is not None and 400 <= status < 500 and status not in _PASSING:
                return _broken(schema_id, why)
            return TableTransientError(
                f"the schema registry fails for schema {schema_id}, and for no other: {why}",
                hint="the registry's log says why; the table is retried with its next change"
                " and when the job starts",
            )
        if status is None:
            return TransientConsumerError(
                f"the schema registry does not answer: {type(error).__name__}",
                hint="check [registry] url",
            )
        if status in _NO_ACCESS and others in _NO_ACCESS:
            return AccessError(
                f"the schema registry refuses access: status {status}",
                hint='check "basic.auth.user.info" in [registry], or how else it knows users',
            )
        return TransientConsumerError(
            f"the schema registry refused schema {schema_id}: status {status}"
        )

    def _status_of_others(self, schema_id: int) -> int | None:
        """Return the status of an answer now, for what another schema needs; None without one."""
        other = next((known for known in list(self._known) if known != schema_id), None)
        try:
            # A client of its own: the first one caches answers.
            with closing(SchemaRegistryClient(self._properties)) as client:
                if other is None:
                    is_answered = isinstance(client.get_subjects(), list)
                else:
                    is_answered = isinstance(client.get_schema(other).schema_str, str)
        except SchemaRegistryError as error:
            return error.http_status_code
        except Exception:  # as above
            return None
        return _OK if is_answered else None


def _broken(schema_id: int, why: str) -> ContractError:
    return ContractError(
        f"the schema registry gives no schema for id {schema_id}: {why}",
        hint="who may write to the schema registry, and is [registry] url the gateway's?",
    )
