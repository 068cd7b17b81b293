"""What Apicurio, a schema registry with Confluent's API, can only be told by its own API."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from gateway.sink.registry.client import SchemaRegistryClient

__all__ = ["accept_any"]

_CONFLUENT_API: Final = "/apis/ccompat/"
_RULES: Final = "/apis/registry/v3/groups/default/artifacts/{}/rules"


def accept_any(client: SchemaRegistryClient, subject: str) -> None:
    """Let an Apicurio registry take any schema under `subject`; nothing happens with another one.

    By Confluent's API, the level NONE takes the subject's own rule away there, so that the global
    one counts. What is refused here shows when a schema is registered.
    """
    rest: Any = client._rest_client  # its session has the user's credentials and certificates
    for url in rest.base_urls:
        place, found, _ = url.partition(_CONFLUENT_API)
        if found:
            rules = place + _RULES.format(quote(subject, safe=""))
            rule = {"ruleType": "COMPATIBILITY", "config": "NONE"}
            if rest.session.post(rules, json=rule).status_code == HTTPStatus.NO_CONTENT:
                return
