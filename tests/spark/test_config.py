"""librdkafka's properties as Spark's Kafka client understands them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_consumer.config import ConsumerSettings, admin_properties, java_properties
from spark_consumer.errors import SettingsError
from spark_consumer.layout import key_layout, value_layout
from spark_consumer.names import part, table_folder


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


def test_any_identifier_is_safe_in_a_path_and_in_a_topic() -> None:
    assert part("a/b.c-x `é") == "a-x002F-b-x002E-c-x002Dx-x0020--x0060--x00E9-"
    assert (
        table_folder("w/", "s", f"public.{part('order items')}") == "w/s/public/order-x0020-items"
    )


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
