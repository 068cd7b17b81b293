"""Settings of the Spark job, as one value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from schemas.settings.tables import ConsumerTable
from schemas.settings.text_files import LONGEST_SECRET, read_text
from spark_consumer.errors import SettingsError

__all__ = [
    "ConsumerSettings",
    "admin_properties",
    "java_properties",
    "source_options",
    "with_connections",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ConsumerTable):
    """Settings of the job: those of ``[consumer]``, and of the command line.

    Attributes:
        kafka: Client properties under their librdkafka names; those of a producer are left out.
        registry_url: Base URL of a schema registry with Confluent's API.
        registry: Further properties of confluent-kafka's registry client
            (``basic.auth.user.info``, ``ssl.ca.location``, ...).
        shutdown_timeout_s: As in the table, and always set.
        available_now: Whether to stop when everything that existed at the start is applied.
        endpos: LSN until which the tables are completed before the job stops; None to run until
            stopped.
        jars: Connector jars for a session that is made here; see `spark_consumer.spark.session`.
    """

    kafka: Mapping[str, str]
    registry_url: str
    registry: Mapping[str, str] = field(default_factory=dict)
    shutdown_timeout_s: float = 10.0
    available_now: bool = False
    endpos: int | None = None
    jars: tuple[str, ...] = ()


def with_connections(
    table: ConsumerTable, kafka: Mapping[str, str], registry: Mapping[str, str]
) -> ConsumerSettings:
    """Return the job's settings.

    Args:
        table: Table ``[consumer]``; a field that is None gets `ConsumerSettings`' default.
        kafka: Table ``[kafka]``.
        registry: Table ``[registry]``, with its ``url``.
    """
    given = {each.name: getattr(table, each.name) for each in fields(table)}
    return ConsumerSettings(
        kafka=kafka,
        registry_url=registry["url"],
        registry={key: value for key, value in registry.items() if key != "url"},
        **{name: value for name, value in given.items() if value is not None},
    )


_COMMON: Final = (
    "bootstrap.servers",
    "security.protocol",
    "client.id",
    "client.rack",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "sasl.kerberos.service.name",
)
"""Properties that both clients know by the same name and with the same meaning."""

_ADMIN: Final = re.compile(
    r"(bootstrap|security|sasl|ssl|socket|broker|client|api)\..*|metadata\.broker\.list"
    r"|enable\.ssl\..*|reconnect\..*|resolve\..*"
)
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_OAUTH: Final = {
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}
"""Settings of librdkafka's OIDC method, as options of Java's login module."""


def admin_properties(settings: ConsumerSettings) -> dict[str, str]:
    """Return the librdkafka properties of an admin client: connection and security."""
    return {key: value for key, value in settings.kafka.items() if _ADMIN.fullmatch(key)}


def java_properties(settings: ConsumerSettings) -> dict[str, str]:
    """Translate the librdkafka properties for Spark's Kafka client.

    Properties of a producer and tuning that only librdkafka knows are left out; everything that
    concerns security is translated or refused, never dropped.

    Returns:
        Java names without Spark's prefix ``kafka.``; `ConsumerSettings.kafka_java` prevails.

    Raises:
        SettingsError: no broker is named, or a security property has no equivalent.
    """
    given = dict(settings.kafka)
    if "metadata.broker.list" in given:
        given.setdefault("bootstrap.servers", given["metadata.broker.list"])
    translated: dict[str, str] = {key: given[key] for key in _COMMON if key in given}
    if "sasl.jaas.config" not in settings.kafka_java:
        translated |= _sasl(given)
    translated |= _tls(given) | dict(settings.kafka_java)
    if not translated.get("bootstrap.servers"):
        raise SettingsError('kafka: "bootstrap.servers" is missing')
    if "security.protocol" in translated:
        translated["security.protocol"] = translated["security.protocol"].upper()
    return translated


def source_options(settings: ConsumerSettings) -> dict[str, str]:
    """Return the options of Spark's Kafka source, for committed records only.

    Raises:
        SettingsError: see `java_properties`.
    """
    properties = {
        # After the last record Spark asks where the partition ends, over the connection on which a
        # fetch still waits for more: half a second for each partition of a batch.
        "fetch.max.wait.ms": "10",
        **java_properties(settings),
        "isolation.level": "read_committed",
    }
    return {f"kafka.{key}": value for key, value in properties.items()}


def _sasl(given: Mapping[str, str]) -> dict[str, str]:
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
    if mechanism is None:
        return {}
    translated = {"sasl.mechanism": mechanism}
    if mechanism in _LOGIN_MODULES:
        user, password = (_jaas(given.get(f"sasl.{part}", "")) for part in ("username", "password"))
        translated["sasl.jaas.config"] = (
            f'{_LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";'
        )
    elif mechanism == "OAUTHBEARER" and given.get("sasl.oauthbearer.method") == "oidc":
        translated |= _oidc(given)
    elif mechanism != "GSSAPI":
        raise SettingsError(
            f"kafka: the Spark job cannot translate sasl.mechanism {mechanism}",
            hint="give Spark's Kafka client its own properties in [consumer.kafka_java]; "
            "docs/managed-services.md has those for tokens",
        )
    return translated


def _oidc(given: Mapping[str, str]) -> dict[str, str]:
    package = "org.apache.kafka.common.security.oauthbearer"
    options = "".join(
        f' {java}="{_jaas(given[name])}"' for name, java in _OAUTH.items() if name in given
    )
    url = "sasl.oauthbearer.token.endpoint.url"
    return {
        "sasl.jaas.config": f"{package}.OAuthBearerLoginModule required{options};",
        "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        **({url: given[url]} if url in given else {}),
    }


def _jaas(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _tls(given: Mapping[str, str]) -> dict[str, str]:
    translated: dict[str, str] = {}
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise SettingsError(
            "kafka: enable.ssl.certificate.verification = false has no equivalent in Spark",
            hint="name the certificate of the authority in ssl.ca.location",
        )
    if ca := given.get("ssl.ca.pem") or _content(given, "ssl.ca.location"):
        translated["ssl.truststore.type"] = "PEM"
        translated["ssl.truststore.certificates"] = ca
    certificate = given.get("ssl.certificate.pem") or _content(given, "ssl.certificate.location")
    key = given.get("ssl.key.pem") or _content(given, "ssl.key.location")
    if certificate and key:
        translated["ssl.keystore.type"] = "PEM"
        translated["ssl.keystore.certificate.chain"] = certificate
        translated["ssl.keystore.key"] = key
        if "ssl.key.password" in given:
            translated["ssl.key.password"] = given["ssl.key.password"]
    if "ssl.keystore.location" in given:
        raise SettingsError(
            "kafka: ssl.keystore.location is a PKCS#12 file, which the Spark job does not read",
            hint="use ssl.certificate.location and ssl.key.location",
        )
    algorithm = given.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        translated["ssl.endpoint.identification.algorithm"] = (
            "" if algorithm == "none" else algorithm
        )
    return translated


def _content(given: Mapping[str, str], key: str) -> str | None:
    if key not in given:
        return None
    try:
        text = read_text(Path(given[key]), LONGEST_SECRET)
        text.encode("ascii")
        return text
    except OSError as error:
        raise SettingsError(f"kafka: {key} cannot be read: {error.strerror or error}") from error
    except ValueError:  # which can quote a private key
        raise SettingsError(f"kafka: {key} names a file that is not in ASCII, as PEM is") from None
