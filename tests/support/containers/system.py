"""The services of docker-compose.yml, under a project name of the tests, with images built here."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.support.containers.engine import Engine, NoEngineError, run
from tests.support.run.waiting import PATIENCE

__all__ = ["IMAGES", "ROOT", "SERVICES", "System"]

ROOT: Final = Path(__file__).resolve().parents[3]
IMAGES: Final = {"gateway": "gateway", "consumer": "consumer", "spark": "driver"}
"""Targets of the Dockerfile, and of each the service that is built of it."""
SERVICES: Final = ("postgres", "kafka", "registry", "gateway", "consumer")
_PROJECT: Final = "pgsluice-test"
_HEALTHY_S: Final = 240


class System:
    """The services, from their images to their end.

    Args:
        engine: Engine that runs them.

    Attributes:
        seconds: Duration of each step, by its name.
        bytes: Sizes of the images that were built, by target.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seconds: dict[str, float] = {}
        self.bytes: dict[str, int] = {}
        self._environment = {**engine.environment, "POSTGRES_PASSWORD": secrets.token_hex(16)}
        if engine.own is not None:
            # Its containers have no way out; what builds an image may use this machine's network.
            self._environment["PGSLUICE_BUILD_NETWORK"] = "host"

    def compose(self, *arguments: str, timeout_s: float = 600) -> str:
        """Run Compose on both files; its standard output. A failure raises."""
        return run(self._command(*arguments), self._environment, timeout_s * PATIENCE)

    def _command(self, *arguments: str) -> list[str | Path]:
        return [
            "docker",
            "compose",
            f"--project-name={_PROJECT}",
            f"--project-directory={ROOT}",
            f"--file={ROOT / 'docker-compose.yml'}",
            f"--file={Path(__file__).with_name('compose.yml')}",
            "--profile=pods",
            *arguments,
        ]

    def build(self) -> None:
        """Build the three images, one after the other.

        Raises:
            NoEngineError: the client has no Compose.
        """
        try:
            run(["docker", "compose", "version"], self._environment)
        except AssertionError as error:
            raise NoEngineError(
                f"an engine answers, but its client has no compose plugin: {error}"
            ) from None
        for target, service in IMAGES.items():
            self._timed(f"image {target}", "build", service, timeout_s=1800)
            image = self.inspect(self.image(target))
            self.bytes[target] = int(image["Size"])

    def up(self) -> None:
        """Start all services, and wait until each is healthy."""
        never = "never" if self.engine.own is not None else "missing"
        self._timed(
            "up",
            *("up", "--no-build", f"--pull={never}", "--detach", "--wait"),
            f"--wait-timeout={_HEALTHY_S * PATIENCE}",
            *SERVICES,
            timeout_s=900,
        )

    def wait_healthy(self, service: str) -> None:
        """Start a service where it does not run, and wait until it is healthy."""
        self.compose(
            *("up", "--no-build", "--pull=never", "--detach", "--no-deps", "--no-recreate"),
            *("--wait", f"--wait-timeout={_HEALTHY_S * PATIENCE}", service),
        )

    def down(self) -> None:
        """Remove the services with their volumes and networks; also what another run has left."""
        self._timed("down", "down", "--volumes", "--remove-orphans", "--timeout=5")

    def remove_images(self) -> None:
        """Remove the images that were built; their layers stay in the build cache."""
        for target in IMAGES:
            subprocess.run(
                ["docker", "image", "rm", "--force", self.image(target)],
                env=self._environment,
                capture_output=True,
            )

    def image(self, target: str) -> str:
        """Name of the image of a target."""
        return f"{_PROJECT}-{target}"

    def inspect(self, name: str) -> dict[str, Any]:
        """Return the engine's description of a container or an image."""
        (found,) = json.loads(self.engine.docker("inspect", name))
        assert isinstance(found, dict)
        return found

    def container(self, service: str) -> dict[str, Any]:
        """Return the engine's description of a service's container, also of an ended one."""
        return self.inspect(self.compose("ps", "--all", "--quiet", service).strip())

    def exec(self, service: str, *command: str) -> str:
        """Run a command in a service's container; its standard output."""
        return self.compose("exec", "-T", service, *command)

    def sql(self, statement: str) -> str:
        """Run SQL as the superuser of the database shop; the values, unaligned."""
        psql = ("psql", "--username=postgres", "--dbname=shop", "-qAtX", "-v", "ON_ERROR_STOP=1")
        return self.exec("postgres", *psql, "-c", statement).strip()

    def report(self) -> list[str]:
        """Sizes and durations, a line each."""
        sizes = [f"image {name}: {size / 1e6:.0f} MB" for name, size in self.bytes.items()]
        return [*sizes, *(f"{what}: {took:.0f} s" for what, took in self.seconds.items())]

    def logs(self) -> str:
        """The last lines of every service."""
        return self.compose("logs", "--no-color", "--tail=15")

    def _timed(self, what: str, *arguments: str, timeout_s: float = 600) -> None:
        began = time.monotonic()
        try:
            self.compose(*arguments, timeout_s=timeout_s)
        finally:
            self.seconds[what] = time.monotonic() - began
            print(f"containers: {what}: {self.seconds[what]:.0f} s", file=sys.stderr, flush=True)
