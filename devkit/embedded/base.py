"""Base of the local servers: a folder, a process in it, and the ways to end it."""

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from devkit.embedded.processes import Server, ServerError


class Embedded(ABC):
    """A server with its data in a temporary folder; use it with ``with``.

    Attributes:
        port: Port that clients connect to.
    """

    def __init__(self, name: str) -> None:
        self.port = 0
        self._name = name
        self._server: Server | None = None
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """The temporary folder of data, settings and log (``log``)."""
        if self._folder is None:
            raise ServerError(f"{self._name} has not been started")
        return self._folder

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.folder / "log"

    @property
    def pid(self) -> int | None:
        """The server's process id, None while it does not run."""
        return self._server.pid if self._server and self._server.returncode() is None else None

    def start(self) -> Self:
        """Start it with new data; returns when it answers clients.

        Raises:
            ServerError: it did not come up; with the end of its log.
        """
        assert self._server is None, "already started"
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def stop(self) -> None:
        """Stop it and remove its data."""
        if self._server is not None:
            self._end(self._server)
            self._server = None
        self._remove()

    def kill(self) -> None:
        """``kill -9`` for the server and all its processes; the data stays for `restart`."""
        assert self._server is not None
        self._server.kill()

    def shut_down(self) -> None:
        """Stop it in good order but keep its data for `restart`."""
        assert self._server is not None
        self._server.stop(timeout_s=30)

    def restart(self) -> None:
        """Start it again on the same data and port, after a stop in good order if it still runs.

        Raises:
            ServerError: it did not come up; with the end of its log.
        """
        assert self._server is not None, "was never started"
        if self._server.returncode() is None:
            self.shut_down()
        self._server = self._launch()

    def __enter__(self) -> Self:
        """Start the server."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server."""
        self.stop()

    @abstractmethod
    def _make(self) -> None:
        """Make `_folder`, what is in it, and `_server`."""

    @abstractmethod
    def _launch(self) -> Server:
        """Start it on the data and the port that it has; returns when it answers clients."""

    def _end(self, server: Server) -> None:
        """End it for good."""
        # The data goes with it, so an orderly shutdown would only cost time.
        server.kill()

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
