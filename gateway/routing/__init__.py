"""Committed transactions to Kafka records: which subscription takes what, under which key.

`Router` is the front; `groups` is the hot path, prepared once per relation.
"""

from gateway.routing.router import Router
from gateway.routing.settings import RoutingSettings

__all__ = ["Router", "RoutingSettings"]
