"""Writer schemas from the schema registry, on the driver, each fetched once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from spark_consumer.errors import ContractError, TransientConsumerError
from spark_consumer.kafka.schema_contract import parsed_schema

__all__ = ["Registry", "Schemas"]


class Schemas(Protocol):
    """Where writer schemas come from."""

    def schema(self, schema_id: int) -> dict[str, Any]:
        """The Avro schema of that id.

        Raises:
            ContractError: there is none, or it is not Avro.
            TransientConsumerError: the registry does not answer.
        """


class Registry:
    """A schema registry with Confluent's API. An id never changes its meaning, so it is cached."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._client = SchemaRegistryClient({"url": url, **options})
        self._known: dict[int, dict[str, Any]] = {}

    def close(self) -> None:
        """Close the connections that are kept open between requests."""
        self._client.close()

    def schema(self, schema_id: int) -> dict[str, Any]:
        """See `Schemas.schema`."""
        if schema_id not in self._known:
            self._known[schema_id] = self._fetch(schema_id)
        return self._known[schema_id]

    def _fetch(self, schema_id: int) -> dict[str, Any]:
        try:
            found = self._client.get_schema(schema_id)
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                raise ContractError(
                    f"the schema registry has no schema with id {schema_id}",
                    hint="is [registry] url the registry that the gateway writes to?",
                ) from error
            raise TransientConsumerError(
                f"the schema registry refused schema {schema_id}: status {error.http_status_code}"
            ) from error
        except Exception as error:  # the client lets its HTTP library's own errors through
            raise TransientConsumerError(
                f"the schema registry does not answer: {type(error).__name__}",
                hint="check [registry] url",
            ) from error
        if found.schema_type != "AVRO" or found.schema_str is None:
            raise ContractError(f"schema {schema_id} is not Avro but {found.schema_type}")
        return parsed_schema(schema_id, found.schema_str)
