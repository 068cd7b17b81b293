"""librdkafka's properties as Spark's Kafka client understands them."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64encode
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs

import pytest

from schemas.topic_names import topic_part
from spark_consumer.errors import SettingsError
from spark_consumer.kafka.layout import key_layout, value_layout
from spark_consumer.names import table_folder
from spark_consumer.settings import (
    ConsumerSettings,
    admin_properties,
    java_properties,
    source_options,
)
from tests.support.backends.answers import AnsweringHandler, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings(**kafka: str) -> ConsumerSettings:
    return ConsumerSettings(
        kafka={"bootstrap.servers": "h:1", **{k.replace("_", "."): v for k, v in kafka.items()}},
        registry_url="",
        warehouse="w",
        checkpoint="c",
        subscriptions=("s",),
    )


def test_a_password_becomes_a_login_module_with_its_quotes_escaped() -> None:
    given = settings(
        security_protocol="sasl_ssl",
        sasl_mechanisms="SCRAM-SHA-512",
        sasl_username="u",
        sasl_password='p"\\',
    )

    assert java_properties(given) == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="u" password="p\\"\\\\";',
    }


def test_certificates_are_read_from_their_files(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(name)
    given = settings(
        ssl_ca_location=str(tmp_path / "ca"),
        ssl_certificate_location=str(tmp_path / "certificate"),
        ssl_key_location=str(tmp_path / "key"),
    )

    assert java_properties(given) == {
        "bootstrap.servers": "h:1",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "certificate",
        "ssl.keystore.key": "key",
    }


def test_a_producer_s_properties_reach_neither_client() -> None:
    given = settings(linger_ms="5", transactional_id="x")

    assert java_properties(given) == admin_properties(given) == {"bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("key", "value"),
    [("enable.ssl.certificate.verification", "false"), ("sasl.mechanism", "OAUTHBEARER")],
)
def test_security_that_cannot_be_translated_is_refused(key: str, value: str) -> None:
    with pytest.raises(SettingsError):
        java_properties(settings(**{key.replace(".", "_"): value}))


def test_what_is_given_for_java_takes_the_place_of_what_cannot_be_translated() -> None:
    given = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": "a.Module required;"}

    found = java_properties(replace(settings(sasl_mechanism="OAUTHBEARER"), kafka_java=given))

    assert found == {"bootstrap.servers": "h:1", **given}


def test_a_read_waits_for_nothing_behind_its_end_unless_it_is_told_to() -> None:
    given = replace(settings(), kafka_java={"fetch.max.wait.ms": "500"})

    assert source_options(settings()) == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.fetch.max.wait.ms": "10",
        "kafka.isolation.level": "read_committed",
    }
    assert source_options(given)["kafka.fetch.max.wait.ms"] == "500"


class _Tokens(AnsweringHandler):
    """An identity provider that gives everybody a token, and remembers who asked."""

    asked: ClassVar[list[tuple[str, str]]] = []

    def do_POST(self) -> None:
        body = self.read_body().decode()
        self.asked.append((self.headers["Authorization"], body))
        claims: dict[str, Any] = {
            "sub": "pgsluice",
            "iat": 0,
            "exp": 99_999_999_999,
            "scope": "topics",
        }
        parts: tuple[dict[str, Any], ...] = ({"alg": "none"}, claims, {})
        token = ".".join(urlsafe_b64encode(json.dumps(one).encode()).decode() for one in parts)
        self.answer_json({"access_token": token.replace("=", "")})


@pytest.mark.spark
def test_spark_s_kafka_client_asks_the_identity_provider_of_the_file(spark: SparkSession) -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Tokens)) as server:
        given = {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "job",
            "sasl.oauthbearer.client.secret": 'se"cret',
            "sasl.oauthbearer.scope": "topics",
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.server_port}/token",
        }
        properties = java_properties(replace(settings(), kafka=given))
        jvm: Any = spark._jvm
        # It logs in before it looks for a broker.
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(
            jvm.java.util.HashMap(properties)
        )
        client.close(jvm.java.time.Duration.ZERO)

    ((authorization, body),) = _Tokens.asked
    assert b64decode(authorization.removeprefix("Basic ")) == b'job:se"cret'
    assert parse_qs(body) == {"grant_type": ["client_credentials"], "scope": ["topics"]}


def test_any_identifier_is_safe_in_a_path() -> None:
    name = f"public.{topic_part('order items')}"
    assert table_folder("w/", "s", name) == "w/s/public/order-x0020-items"


def test_the_contract_s_example_schemas_are_understood() -> None:
    import schemas

    layout = value_layout(schemas.load("envelope"))
    key = key_layout(schemas.load("envelope-key"))

    assert [(c.name, c.pg_type) for c in layout.columns] == [
        ("a", "integer"),
        ("b", "integer"),
        ("c", "text"),
    ]
    assert key is not None
    assert key.fields == ("a", "c")
