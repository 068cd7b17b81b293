"""Routes by relation, built at their first use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from gateway.routing.ports import UnannouncedError
from gateway.routing.row.relation_route import RelationRoute

__all__ = ["LazyRoutes"]


class LazyRoutes(dict[int, RelationRoute]):
    """Routes by relation OID, built at their first use.

    Looking up a relation raises UnannouncedError if it was never announced, SchemaError if it
    cannot be published as it is now, TransientError if the catalog or registry cannot be reached.

    Attributes:
        answering: Context manager entered while a route is built: catalog and registry may be slow.
    """

    def __init__(self, build: Callable[[int], RelationRoute | None]) -> None:
        super().__init__()
        self._build = build
        self.answering: Callable[[], AbstractContextManager[None]] = nullcontext

    def __missing__(self, relation_oid: int) -> RelationRoute:
        with self.answering():
            route = self._build(relation_oid)
        if route is None:
            raise UnannouncedError(relation_oid)
        self[relation_oid] = route
        return route
