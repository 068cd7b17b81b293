"""pgsluice, as a process.

Not its defaults: nothing is copied at the start unless a scenario asks for it, and a server or
broker that is away is waited for for a minute.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.compare.stage import Source, Stage
from bench.configuration import configure
from bench.processes import BenchError
from devkit.embedded.processes import Server

__all__ = ["Pgsluice"]


class Pgsluice:
    """A gateway with one subscription, which is called like the database."""

    def __init__(
        self,
        stage: Stage,
        source: Source,
        tables: Mapping[str, str | None],
        *,
        snapshot: bool = False,
    ) -> None:
        self._name = source.dbname
        self._folder = stage.scratch(f"{source.dbname}-files")
        listed = ", ".join(
            name if where is None else f"{name} WHERE ({where})" for name, where in tables.items()
        )
        definitions = (
            f"CREATE PUBLICATION p FOR TABLE {listed};\n"
            f"CREATE SUBSCRIPTION {self._name} CONNECTION '' PUBLICATION p"
            f" WITH (copy_data = {str(snapshot).lower()});\n"
        )
        self._configuration = configure(
            self._folder,
            self._name,
            definitions,
            source.server,
            stage.kafka,
            stage.registry,
            {
                "source": {"dsn": source.dsn, "slot": self._name},
                "limits": {"retry_for_s": 60},
            },
        )
        self._server: Server | None = None

    def start(self) -> None:
        """Start the daemon."""
        self._server = Server(
            "pgsluice",
            [sys.executable, "-m", "gateway", "run", "--config", self._configuration],
            log=self._folder / "log",
            cwd=Path.cwd(),
        )

    def stop(self) -> None:
        """Stop it by SIGTERM."""
        if self._server is not None:
            self._server.stop(timeout_s=60)

    def kill(self) -> None:
        """Kill it."""
        if self._server is None:
            raise BenchError("pgsluice was not started")
        self._server.kill()

    @property
    def pid(self) -> int | None:
        """The daemon."""
        server = self._server
        return server.pid if server is not None and server.returncode() is None else None

    def fault(self) -> str | None:
        """Return the end of its log if it has ended by itself: what is wrong, and a hint."""
        if self._server is None or not self._server.returncode():
            return None
        return self._server.log_tail(2).replace("\n", "; ")

    def follow_advice(self) -> bool:
        """Drop the slot, as its hint says after a restore, and start again."""
        if "slot drop" not in (self.fault() or ""):
            return False
        done = self.run("slot", "drop", "--yes")
        if done.returncode:
            raise BenchError(f"pgsluice slot drop: {done.stderr}")
        self.start()
        return True

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command of pgsluice with the same configuration."""
        return subprocess.run(
            [sys.executable, "-m", "gateway", *arguments, "--config", self._configuration],
            capture_output=True,
            text=True,
            check=False,
        )

    def topic(self, table: str) -> str:
        """Return the topic of a table."""
        return f"{self._name}.public.{table}"
