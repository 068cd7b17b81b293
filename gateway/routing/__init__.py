"""Routing of committed transactions to Kafka records, by subscription and key. Pure.

`Router` is the entry point; `build` prepares a relation's route when its Relation message arrives,
and `row` is the hot path that runs on it.
"""

from gateway.routing.router import Router
from gateway.routing.settings import RoutingSettings

__all__ = ["Router", "RoutingSettings"]
