"""Servers that let nobody in without TLS and a password, and clients with the documented rights.

The rights are read from docs/operations.md, so that what stands there is what the tests use.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import EmbeddedRegistry
from tests.support.backends.broker import create_acls
from tests.support.backends.tokens import AUDIENCE, ISSUER, TokenService
from tests.support.gateway.process import GatewayProject, TopicReader

# PostgreSQL 17: the others that are at hand are built without TLS.
MAJOR: Final = 17
DATABASE: Final = "shop"
ROLE: Final = "replicator"
GATEWAY, CONSUMER, READER = "gateway", "consumer", "reader"
PASSWORD: Final = "kept-in-a-file"
REGISTRY_USER: Final = f"gateway:{PASSWORD}"
# Each with the filter of the tests' publication.
TABLES: Final = {"t1": "true", "t2": "b = 'x'", "t3": "true"}
OPERATIONS: Final = Path(__file__).parents[3] / "docs" / "operations.md"

_HBA: Final = """
host all postgres 127.0.0.1/32 scram-sha-256
hostssl all all 127.0.0.1/32 scram-sha-256
"""
_KAFKA: Final = {
    "ssl.keystore.type": "PEM",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    ),
    "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    ),
    "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
    "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
    # A connection ends with its token, unless the client renews it.
    "listener.name.sasl_ssl.oauthbearer.connections.max.reauth.ms": "3600000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Whoever comes by the listener without security: the tests' own clients.
    "super.users": "User:ANONYMOUS",
}


@dataclass(frozen=True)
class Authority:
    """A certificate authority of the test's own, and a server's certificate for 127.0.0.1.

    All are PEM files; `keystore` has the server's key and certificate in one, as Kafka wants it.
    """

    ca: Path
    certificate: Path
    key: Path
    keystore: Path


def make_authority(folder: Path) -> Authority:
    """Make one, with files in a new folder."""
    folder.mkdir()
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name(f"authority of {folder.name}")
    ca = _certificate(issuer, issuer, ca_key, ca_key, is_ca=True)
    certificate = _certificate(_name("127.0.0.1"), issuer, key, ca_key, is_ca=False)
    made = Authority(*(folder / f"{name}.pem" for name in ("ca", "certificate", "key", "keystore")))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    made.ca.write_bytes(ca)
    made.certificate.write_bytes(certificate)
    made.key.write_bytes(private)
    made.keystore.write_bytes(private + certificate + ca)
    return made


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signing_key: ec.EllipticCurvePrivateKey,
    *,
    is_ca: bool,
) -> bytes:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if not is_ca:
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
    signed = builder.sign(signing_key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True)
class Secured:
    """The three servers and a token service, and what a configuration needs to reach them.

    Attributes:
        authority: Signed the certificates of all three.
        secrets: A folder with one file for each secret.
    """

    authority: Authority
    secrets: Path
    postgres: EmbeddedPostgres
    kafka: EmbeddedKafka
    registry: EmbeddedRegistry
    tokens: TokenService

    def dsn(self, *, ca: Path | None = None, password: str = PASSWORD) -> str:
        """As the role of the documented rights reaches the source."""
        return (
            f"host=127.0.0.1 port={self.postgres.port} dbname={DATABASE} user={ROLE}"
            f" password={password} sslmode=verify-full sslrootcert={ca or self.authority.ca}"
        )

    def kafka_properties(self, user: str) -> dict[str, str]:
        """``[kafka]`` without the password."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.kafka.sasl_ssl_port}",
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
        }

    def token_properties(self, user: str, fault: str = "") -> dict[str, str]:
        """``[kafka]`` with tokens instead of a password; `fault` as in `TokenService.address`."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.kafka.sasl_ssl_port}",
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority.ca),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.plugin": "tests.support.backends.tokens:fetch",
            "sasl.oauthbearer.config": self.tokens.address(user, fault),
        }

    def registry_properties(self) -> dict[str, str]:
        """``[registry]`` without the user and the password."""
        return {"url": self.registry.url, "ssl.ca.location": str(self.authority.ca)}

    def reader(self) -> TopicReader:
        """Reads topics as the test itself: past Kafka's security, with the registry's user."""
        return TopicReader(
            self.kafka.bootstrap_servers,
            self.registry.url,
            **{
                "ssl.ca.location": str(self.authority.ca),
                "basic.auth.user.info": REGISTRY_USER,
            },
        )

    def environment(self) -> dict[str, str]:
        """The secrets, each as a file."""
        secrets = {
            "PGSLUICE_SOURCE__DSN_FILE": self.dsn(),
            "PGSLUICE_KAFKA__SASL_PASSWORD_FILE": PASSWORD,
            "PGSLUICE_REGISTRY__BASIC_AUTH_USER_INFO_FILE": REGISTRY_USER,
        }
        for variable, secret in secrets.items():
            (self.secrets / variable).write_text(secret)
        return {variable: str(self.secrets / variable) for variable in secrets}

    def project(self, folder: Path, definitions: str) -> GatewayProject:
        """A gateway's configuration; its secrets are in `environment`."""
        return GatewayProject(
            folder,
            "",
            "",
            "",
            "pgsluice",
            definitions,
            {
                "kafka": self.kafka_properties(GATEWAY),
                "registry": self.registry_properties(),
                "topics": {"progress": "pgsluice.progress"},
            },
        )

    def admin(self) -> AdminClient:
        """A client of Kafka that may do everything."""
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})


@contextmanager
def secured_servers(folder: Path) -> Iterator[Secured]:
    """Start all three; the role and the database of the documented rights are there."""
    authority = make_authority(folder / "authority")
    (folder / "secrets").mkdir()
    tokens = TokenService(folder)
    of_tokens = "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
    with ExitStack() as stack:
        stack.enter_context(tokens.serving())
        postgres = stack.enter_context(EmbeddedPostgres(MAJOR))
        kafka = stack.enter_context(
            EmbeddedKafka(
                sasl_ssl=True,
                config={
                    **_KAFKA,
                    "ssl.keystore.location": str(authority.keystore),
                    of_tokens: tokens.keys.as_uri(),
                },
            )
        )
        registry = stack.enter_context(
            EmbeddedRegistry(
                certificate=authority.certificate, key=authority.key, user=REGISTRY_USER
            )
        )
        made = Secured(authority, folder / "secrets", postgres, kafka, registry, tokens)
        _close_postgres(postgres, authority)
        _add_users(made.admin())
        yield made


@contextmanager
def secured_tables(folder: Path) -> Iterator[Secured]:
    """Start all three with `TABLES` and the documented rights, for a subscription `s`."""
    with secured_servers(folder) as made:
        with made.postgres.connect(DATABASE) as connection:
            for table in TABLES:
                connection.execute(
                    f"CREATE TABLE {table} (a int PRIMARY KEY, b text);"
                    f"ALTER TABLE {table} REPLICA IDENTITY FULL;"
                    f"INSERT INTO {table} VALUES (1, 'x'), (2, 'y')".encode()
                )
        grant_documented_rights(made.postgres)
        grant_documented_acls(made.admin(), {"subscription": "s"})
        yield made


def _close_postgres(server: EmbeddedPostgres, authority: Authority) -> None:
    """Take everybody by TLS and SCRAM only, but for the superuser, who is the test itself."""
    data = server.folder / "data"
    owner = data.stat()
    for source, name in ((authority.certificate, "server.crt"), (authority.key, "server.key")):
        shutil.copy(source, data / name)
        os.chown(data / name, owner.st_uid, owner.st_gid)
        (data / name).chmod(0o600)
    (data / "pg_hba.conf").write_text(_HBA)
    with server.connect() as connection:
        connection.execute("ALTER SYSTEM SET ssl = on")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(f"CREATE DATABASE {DATABASE}".encode())


def grant_documented_rights(server: EmbeddedPostgres) -> None:
    """Run the statements of docs/operations.md, "Rights of the role"; the tables must be there."""
    section = OPERATIONS.read_text().partition("## Rights of the role")[2]
    match = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert match is not None
    with server.connect(DATABASE) as connection:
        connection.execute(match[1].encode())
        connection.execute(f"ALTER ROLE {ROLE} PASSWORD '{PASSWORD}'".encode())


def _add_users(admin: AdminClient) -> None:
    credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    users = admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(user, credentials, PASSWORD.encode())
            for user in (GATEWAY, CONSUMER)
        ]
    )
    for future in users.values():
        future.result()


def grant_documented_acls(admin: AdminClient, names: Mapping[str, str]) -> None:
    """Create the ACLs of the table in docs/operations.md, "Rights in Kafka".

    Args:
        admin: Client of a user who may.
        names: Replacements for the names in angle brackets.
    """
    bindings = [
        AclBinding(
            ResourceType[kind],
            name,
            ResourcePatternType[pattern],
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for user, kind, pattern, name, operation in _documented_acls(names)
    ]
    create_acls(admin, bindings)


_WHO: Final = {"the gateway": GATEWAY, "the Spark job": CONSUMER, "a reader in Python": READER}
_KINDS: Final = {
    "topic": "TOPIC",
    "transactional id": "TRANSACTIONAL_ID",
    "group": "GROUP",
}


def _documented_acls(names: Mapping[str, str]) -> Iterator[tuple[str, str, str, str, str]]:
    section = OPERATIONS.read_text().partition("## Rights in Kafka")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) `(.+?)` \| (.+?) \|", section, re.MULTILINE)
    assert rows, "no table"
    for who, kind, name, operations in rows:
        for placeholder, actual in names.items():
            name = name.replace(f"<{placeholder}>", actual)
        assert "<" not in name, name
        pattern = "PREFIXED" if name.endswith("*") else "LITERAL"
        user = _WHO[who]
        for operation in operations.split(", "):
            spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
            yield user, _KINDS[kind], pattern, name.rstrip("*"), spelled
