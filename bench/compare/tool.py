"""Interface of a tool, as the scenarios use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from bench.compare.stage import Source, Stage

__all__ = ["MakeTool", "Tool"]


class Tool(Protocol):
    """A tool that carries the changes of one database into topics, as one process."""

    def start(self) -> None:
        """Start it; it may return before the stream has begun.

        Raises:
            BenchError: it did not start.
        """
        ...

    def stop(self) -> None:
        """Stop it in good order."""
        ...

    def kill(self) -> None:
        """``kill -9``."""
        ...

    @property
    def pid(self) -> int | None:
        """Its process; None while it does not run, or has ended by itself."""
        ...

    def fault(self) -> str | None:
        """Return what it says if it has given up, or None."""
        ...

    def follow_advice(self) -> bool:
        """Do what its fault advises, and start it again; False if it advises nothing."""
        ...

    def topic(self, table: str) -> str:
        """Return the topic of a table of the schema ``public``."""
        ...


class MakeTool(Protocol):
    """Makes a tool for some tables; a text beside a table is its row filter."""

    def __call__(
        self,
        stage: Stage,
        source: Source,
        tables: Mapping[str, str | None],
        *,
        snapshot: bool = False,
    ) -> Tool:
        """Return it; with `snapshot` it begins with the rows that are there."""
        ...
