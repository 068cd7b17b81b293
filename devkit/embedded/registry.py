"""A real schema registry as a local process: Apicurio, through its Confluent-compatible API."""

import base64
import http.client
import json
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from devkit.embedded.base import Embedded
from devkit.embedded.processes import Server, ServerError, free_port, port_answers
from gateway.jars import ivy as jars
from gateway.jars.java import java

#: Path of Confluent's API in Apicurio.
API_PATH = "/apis/ccompat/v7"
_PORT_ATTEMPTS = 5


class EmbeddedRegistry(Embedded):
    """One schema registry on 127.0.0.1 that keeps its schemas in memory.

    Its compatibility is BACKWARD, as Confluent's is by default. Schemas are gone after `stop`,
    `kill` and `restart`.

    Args:
        heap_mb: the Java heap, in MiB.
        certificate: answer to TLS only, with this certificate; a PEM file.
        key: its private key; a PEM file.
        user: answer to this ``name:password`` only.
    """

    def __init__(
        self,
        *,
        heap_mb: int = 256,
        certificate: Path | None = None,
        key: Path | None = None,
        user: str | None = None,
    ) -> None:
        super().__init__("the schema registry")
        self._heap_mb = heap_mb
        self._certificate = certificate
        self._key = key
        self._user = user

    @property
    def url(self) -> str:
        """Value of ``schema.registry.url`` for clients."""
        scheme = "https" if self._certificate else "http"
        return f"{scheme}://127.0.0.1:{self.port}{API_PATH}"

    @property
    def client_settings(self) -> dict[str, str]:
        """How clients connect, in the terms of Confluent's client."""
        settings = {"url": self.url}
        if self._user is not None:
            settings["basic.auth.user.info"] = self._user
        return settings

    def _make(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pgsluice-registry-"))
        if self._user is not None:
            # Quarkus reads it in the working directory; a command line is no place for a password.
            settings = self._folder / "config" / "application.properties"
            settings.parent.mkdir()
            settings.touch(mode=0o600)
            settings.write_text("\n".join(_of_user(self._user)))
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self.port = free_port()
            try:
                self._server = self._launch()
            except ServerError:
                # Somebody took the port between our look and the registry's bind.
                taken = "already in use" in self.log.read_text(errors="replace")
                if not taken or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return

    def _launch(self) -> Server:
        (runner,) = jars.folder("registry").glob("*-runner.jar")
        server = Server(
            "schema registry",
            [
                java(),
                f"-Xmx{self._heap_mb}m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Xshare:auto",
                "-Dquarkus.http.host=127.0.0.1",
                "-Dquarkus.log.level=WARN",
                *self._doors(),
                "-jar",
                runner,
            ],
            log=self.log,
            cwd=self._folder,
            remove=self._folder,
        )
        server.await_ready(self._answers, timeout_s=180)
        return server

    def _doors(self) -> Iterator[str]:
        """How it listens, as Quarkus' properties."""
        if self._certificate is None:
            yield f"-Dquarkus.http.port={self.port}"
        else:
            yield f"-Dquarkus.http.ssl-port={self.port}"
            yield f"-Dquarkus.http.ssl.certificate.files={self._certificate}"
            yield f"-Dquarkus.http.ssl.certificate.key-files={self._key}"
            yield "-Dquarkus.http.insecure-requests=disabled"

    def _answers(self) -> bool:
        if not port_answers(self.port):
            return False
        return accepts_compatibility(
            "127.0.0.1", self.port, certificate=self._certificate, user=self._user
        )


def _of_user(user: str) -> Iterator[str]:
    """Quarkus' properties that let nobody in but this ``name:password``."""
    name, _, password = user.partition(":")
    yield "quarkus.http.auth.basic=true"
    yield "quarkus.http.auth.permission.all.paths=/*"
    yield "quarkus.http.auth.permission.all.policy=authenticated"
    yield "quarkus.security.users.embedded.plain-text=true"
    yield f"quarkus.security.users.embedded.users.{name}={password}"
    yield f"quarkus.security.users.embedded.roles.{name}=sr-admin"


def accepts_compatibility(
    host: str, port: int, *, certificate: Path | None = None, user: str | None = None
) -> bool:
    """Set an Apicurio registry's compatibility to BACKWARD; False while it is not up yet.

    It refuses until all of it is up, so this is also how its readiness is known.
    """
    if certificate is None:
        connection = http.client.HTTPConnection(host, port, timeout=30)
    else:
        trust = ssl.create_default_context(cafile=certificate)
        trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        connection = http.client.HTTPSConnection(host, port, timeout=30, context=trust)
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    if user is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    try:
        connection.request(
            "PUT",
            f"{API_PATH}/config",
            body=json.dumps({"compatibility": "BACKWARD"}),
            headers=headers,
        )
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
