"""Settings of Apicurio, a registry with Confluent's API, that need its own API."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from gateway.sink.registry.client import SchemaRegistryClient

__all__ = ["accept_any"]

_CONFLUENT_API: Final = "/apis/ccompat/"
_RULES: Final = "/apis/registry/v3/groups/default/artifacts/{}/rules"


def accept_any(client: SchemaRegistryClient, subject: str) -> None:
    """Let an Apicurio registry accept any schema under `subject`; no effect on other registries.

    Through Confluent's API, level NONE removes the subject's rule in Apicurio, so that the global
    one applies. If the request is refused, the registration of the schema will fail.
    """
    rest: Any = client._rest_client  # its session has the user's credentials and certificates
    for url in rest.base_urls:
        place, found, _ = url.partition(_CONFLUENT_API)
        if found:
            rules = place + _RULES.format(quote(subject, safe=""))
            rule = {"ruleType": "COMPATIBILITY", "config": "NONE"}
            if rest.session.post(rules, json=rule).status_code == HTTPStatus.NO_CONTENT:
                return
