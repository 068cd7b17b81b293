"""A registry asked over HTTP needs no certificate authorities, and TLS is never left unverified."""

from __future__ import annotations

import ssl

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from schemas.registry_trust import without_unused_authorities


def authorities(properties: dict[str, str]) -> int:
    """The number of authorities that a client trusts; it verifies certificates and names."""
    with SchemaRegistryClient(without_unused_authorities(properties)) as client:
        context = client._rest_client.verify
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    return len(context.get_ca_certs())


@pytest.mark.parametrize("url", ["http://a:8081", "HTTP://a, http://b/"])
def test_no_authorities_are_loaded_for_a_plain_registry(url: str) -> None:
    properties = {"url": url, "basic.auth.user.info": "a:b", "timeout": "3"}

    assert without_unused_authorities(properties).items() > properties.items()
    if url.startswith("http:"):  # the client refuses another scheme
        assert authorities(properties) == 0


@pytest.mark.parametrize(
    "properties",
    [
        {"url": "https://a"},
        {"url": "http://a,https://b"},
        {"url": "http://a", "ssl.ca.location": "ca.pem"},
        {"url": "http://a", "ssl.certificate.location": "client.pem"},
        {"url": "http://a", "bearer.auth.credentials.source": "OAUTHBEARER"},
        {"url": "mock://a"},
        {},
    ],
)
def test_others_keep_their_authorities(properties: dict[str, str]) -> None:
    assert without_unused_authorities(properties) == properties


def test_a_client_of_https_trusts_the_usual_authorities() -> None:
    assert authorities({"url": "https://a"}) > 100
