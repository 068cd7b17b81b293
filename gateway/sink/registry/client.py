"""Confluent's registry client, which loads its OAuth library only if OAuth is configured.

Importing authlib costs about as much CPU as everything else that a start imports from the
registry's, Kafka's and PostgreSQL's clients together, for two classes that only a configuration
with ``bearer.auth.credentials.source = OAUTHBEARER`` calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final

_OAUTH: Final = "authlib.integrations.httpx_client"
_CLASSES: Final = ("OAuth2Client", "AsyncOAuth2Client")


@contextmanager
def _oauth_on_demand() -> Iterator[None]:
    """Substitute stand-ins for authlib's clients, which load authlib when called."""
    if _OAUTH in sys.modules:
        yield
        return
    stand_in = ModuleType(_OAUTH)
    for name in _CLASSES:
        setattr(stand_in, name, _loading(name))
    sys.modules[_OAUTH] = stand_in
    try:
        yield
    finally:
        sys.modules.pop(_OAUTH, None)


def _loading(name: str) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(_OAUTH), name)(*args, **kwargs)

    return make


with _oauth_on_demand():
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

__all__ = ["Schema", "SchemaRegistryClient", "SchemaRegistryError"]
