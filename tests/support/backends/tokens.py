"""A token service of the test's own, whose JSON Web Tokens a real broker checks, and its plugin."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.support.backends.answers import AnsweringHandler, serving

ISSUER: Final = "token service of the tests"
AUDIENCE: Final = "kafka of the tests"
LIFE_S: Final = 600
"""Life of a token, which is longer than a busy machine lets a connection wait."""
SAID_LIFE_S: Final = 6
"""Life that clients are told, so that they renew tokens within a test."""
MARK: Final = "eyJ"
"""How every token begins: the base64 of its header."""


def fetch(config: str) -> tuple[str, float]:
    """Return the token of a service; a plugin for ``sasl.oauthbearer.plugin``.

    Args:
        config: Address of the service with the user's name: `TokenService.address`.
    """
    with urllib.request.urlopen(config, timeout=30) as answer:
        made = json.load(answer)
    return made["token"], made["expiry"]


class TokenService:
    """Service on 127.0.0.1 that signs a token for whoever asks.

    Attributes:
        keys: File with its public keys (JWKS).
        issued: Number of tokens issued, by user.
    """

    def __init__(self, folder: Path) -> None:
        self._key, self._foreign = (
            RSAKey.generate_key(2048, {"kid": "1", "use": "sig"}) for _ in range(2)
        )
        self.keys = folder / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        self.issued: dict[str, int] = {}
        self._server: ThreadingHTTPServer | None = None

    def address(self, user: str, fault: str = "") -> str:
        """Return the address for a user's tokens.

        Args:
            user: Subject of the token.
            fault: ``key`` for a signature by another key, ``expiry`` for an expired token that is
                said to last.
        """
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_port}/?user={user}&fault={fault}"

    def _token(self, user: str, fault: str) -> dict[str, object]:
        self.issued[user] = self.issued.get(user, 0) + 1
        now = int(time.time())
        expiry = now - 3600 if fault == "expiry" else now + LIFE_S
        claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now - 7200, "exp": expiry}
        key = self._foreign if fault == "key" else self._key
        return {
            "token": jwt.encode({"alg": "RS256", "kid": "1"}, claims, key),
            "expiry": now + SAID_LIFE_S,
        }

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Answer requests."""
        service = self

        class Handler(AnsweringHandler):
            def do_GET(self) -> None:
                asked = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
                self.answer_json(service._token(asked["user"][0], asked["fault"][0]))

        with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
            self._server = server
            yield
