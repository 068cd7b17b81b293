"""The registry's client, and the OAuth library that only OAuth needs."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

_USE: Final = """
import sys
from gateway.sink.registry.registry import Registry
Registry({"url": "http://127.0.0.1:1", "basic.auth.user.info": "a:b"}).close()
assert "authlib" not in sys.modules, "authlib is loaded for a registry without OAuth"
registry = Registry({
    "url": "http://127.0.0.1:1",
    "bearer.auth.credentials.source": "OAUTHBEARER",
    "bearer.auth.issuer.endpoint.url": "http://127.0.0.1:1/token",
    "bearer.auth.client.id": "id",
    "bearer.auth.client.secret": "secret",
    "bearer.auth.scope": "scope",
    "bearer.auth.logical.cluster": "cluster",
    "bearer.auth.identity.pool.id": "pool",
})
from authlib.integrations.httpx_client import OAuth2Client
provider = registry._client._rest_client.bearer_field_provider
assert isinstance(provider.client, OAuth2Client), provider
registry.close()
"""
_CONFIGURATION: Final = """
import sys
import gateway.cli
gateway.cli.command_line()
assert not {"psycopg", "confluent_kafka", "postgast"} & sys.modules.keys()
"""


def _run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_oauth_library_is_loaded_by_a_configuration_that_names_oauth() -> None:
    _run(_USE)


def test_command_line_is_parsed_without_loading_a_client() -> None:
    _run(_CONFIGURATION)
