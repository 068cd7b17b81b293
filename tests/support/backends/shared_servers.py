"""The servers of a run that several test processes share.

The process that hands out the tests owns the servers (`ServerHub`); those that run the tests ask it
for addresses (`SharedServers`). A server is started when the first of them asks. Questions and
answers are one JSON line each, over a socket in a folder that only this user may enter.

``python -m tests.support.backends.shared_servers`` keeps them up between runs, until it is stopped,
and says how runs find them: ``PGSLUICE_TEST_SERVERS`` is the socket's path then.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from socket import AF_UNIX, socket
from threading import Lock, Thread
from typing import Final

from tests.support.backends.servers import SERVERS, PostgresServer, RemotePostgres, Servers

__all__ = ["ServerHub", "SharedServers", "given_servers"]

_PATIENCE_S: Final = 300.0
"""How long an answer may take, in seconds: a server is started, or in a container even fetched."""


def given_servers() -> str | None:
    """The socket of servers that somebody keeps up; None: this run has its own."""
    given = os.environ.get(SERVERS, "")
    return given if given.startswith("/") else None


class ServerHub:
    """Answers the test processes of one run.

    Attributes:
        address: Path of the socket.
        groups: Files of tests that stay together, and the name of their group.
    """

    def __init__(self, servers: Servers | SharedServers) -> None:
        self._servers = servers
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self.groups: dict[str, str] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="pgsluice-tests-")
        self.address = str(Path(self._folder.name) / "servers")
        hub = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                question = self.rfile.readline().decode().strip()
                self.wfile.write(json.dumps(hub.answer(question)).encode() + b"\n")

        self._server = socketserver.ThreadingUnixStreamServer(self.address, Handler)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, name="server hub", daemon=True).start()

    def answer(self, question: str) -> dict[str, str]:
        """The address of a server, which is started if need be; or why there is none."""
        if question.startswith("groups "):
            self.groups.update(json.loads(question.removeprefix("groups ")))
            return {}
        if question == "containers":
            return {"address": str(int(self._servers.containers))}
        kind, _, major = question.partition(" ")
        with self._locks[question]:
            try:
                if kind == "postgres":
                    server = self._servers.postgres(int(major))
                    return RemotePostgres.of(server).as_dict()
                return {"address": getattr(self._servers, kind)()}
            except Exception as error:  # passed on to the test that asked
                return {"error": f"{type(error).__name__}: {error}"}

    def close(self) -> None:
        """Stop answering; the servers are stopped by whoever has made them."""
        self._server.shutdown()
        self._server.server_close()
        self._folder.cleanup()


class SharedServers:
    """The servers of the run as a test process sees them, with the methods of `Servers`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._known: dict[str, dict[str, str]] = {}
        self.containers = self._ask("containers")["address"] == "1"

    def describe(self) -> str:
        """One line that says what the tests run against."""
        return "servers shared by the processes of the run"

    def postgres(self, major: int) -> PostgresServer:
        """The run's server of this major version."""
        return RemotePostgres(**self._ask(f"postgres {major}"), major=major)

    def kafka(self) -> str:
        """``bootstrap.servers`` of the run's broker."""
        return self._ask("kafka")["address"]

    def registry(self) -> str:
        """URL of the run's schema registry."""
        return self._ask("registry")["address"]

    def say_groups(self, groups: Mapping[str, str]) -> None:
        """Say which files of tests stay together."""
        self._ask(f"groups {json.dumps(groups)}")

    def stop(self) -> None:
        """Nothing: they are not ours."""

    def _ask(self, question: str) -> dict[str, str]:
        if question not in self._known:
            with socket(AF_UNIX) as connection, connection.makefile("rw") as lines:
                connection.settimeout(_PATIENCE_S)
                connection.connect(self._address)
                lines.write(question + "\n")
                lines.flush()
                answer = json.loads(lines.readline())
            if "error" in answer:
                raise RuntimeError(f"no {question}: {answer['error']}")
            self._known[question] = answer
        return self._known[question]


def main() -> int:
    """Keep servers up until SIGINT or SIGTERM."""
    servers = Servers()
    hub = ServerHub(servers)
    print(f"export {SERVERS}={hub.address}", flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        hub.close()
        servers.stop()
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
