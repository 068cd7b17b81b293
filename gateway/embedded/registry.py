"""A real schema registry as a local process: Apicurio, through its Confluent-compatible API."""

import http.client
import json
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.embedded import jars
from gateway.embedded.java import java
from gateway.embedded.processes import Server, ServerError, free_port, port_answers

#: Where Apicurio has Confluent's API.
API_PATH = "/apis/ccompat/v7"
_PORT_ATTEMPTS = 5


class EmbeddedRegistry:
    """One schema registry on 127.0.0.1 that keeps its schemas in memory.

    Its compatibility is BACKWARD, as Confluent's is by default. What was registered is gone after
    `stop`, `kill` and `restart`.

    Args:
        heap_mb: the Java heap, in MiB.
    """

    def __init__(self, *, heap_mb: int = 256) -> None:
        self.port = 0
        self._heap_mb = heap_mb
        self._server: Server | None = None
        self._folder: Path | None = None

    @property
    def url(self) -> str:
        """Value of ``schema.registry.url`` for clients."""
        return f"http://127.0.0.1:{self.port}{API_PATH}"

    @property
    def log(self) -> Path:
        """The registry's log file."""
        if self._folder is None:
            raise ServerError("the schema registry has not been started")
        return self._folder / "log"

    @property
    def pid(self) -> int | None:
        """The registry's process id, None while it does not run."""
        return self._server.pid if self._server and self._server.returncode() is None else None

    def start(self) -> Self:
        """Start the registry; returns when it answers and its compatibility is set.

        Raises:
            ServerError: it did not come up; with the end of its log.
        """
        assert self._server is None, "already started"
        self._folder = Path(tempfile.mkdtemp(prefix="pgsluice-registry-"))
        try:
            for attempt in range(1, _PORT_ATTEMPTS + 1):
                self.port = free_port()
                try:
                    self._launch()
                except ServerError:
                    # Somebody took the port between our look and the registry's bind.
                    taken = "already in use" in self.log.read_text(errors="replace")
                    if not taken or attempt == _PORT_ATTEMPTS:
                        raise
                else:
                    break
        except BaseException:
            self._remove()
            raise
        return self

    def stop(self) -> None:
        """Stop the registry; what was registered is gone."""
        if self._server is not None:
            self._server.kill()
            self._server = None
        self._remove()

    def kill(self) -> None:
        """``kill -9``; what was registered is gone."""
        assert self._server is not None
        self._server.kill()

    def restart(self) -> None:
        """Start an empty registry on the same port, after a stop if it still runs.

        Raises:
            ServerError: it did not come up; with the end of its log.
        """
        assert self._server is not None, "was never started"
        self._server.kill()
        self._launch()

    def __enter__(self) -> Self:
        """Start the registry."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the registry."""
        self.stop()

    def _launch(self) -> None:
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
                f"-Dquarkus.http.port={self.port}",
                "-Dquarkus.log.level=WARN",
                "-jar",
                runner,
            ],
            log=self.log,
            cwd=self._folder,
            remove=self._folder,
        )
        server.await_ready(self._answers, timeout_s=180)
        self._server = server

    def _answers(self) -> bool:
        return port_answers(self.port) and takes_compatibility("127.0.0.1", self.port)

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def takes_compatibility(host: str, port: int) -> bool:
    """Set an Apicurio registry's compatibility to BACKWARD; False while it is not up yet.

    It refuses until all of it is up, so this is also how its readiness is known.
    """
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request(
            "PUT",
            f"{API_PATH}/config",
            body=json.dumps({"compatibility": "BACKWARD"}),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
