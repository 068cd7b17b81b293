"""Committed transactions to Kafka records: which subscription takes what, under which key.

`Router` is the front. `build` prepares a relation's route when its Relation message comes; `row` is
the hot path that runs on it. Pure.
"""

from gateway.routing.router import Router
from gateway.routing.settings import RoutingSettings

__all__ = ["Router", "RoutingSettings"]
