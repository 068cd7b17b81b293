"""Tokens for Kafka's OAUTHBEARER from a plugin: one property for every client of every program.

``sasl.oauthbearer.plugin`` names a function by its entry point (group `GROUP`) or as
``module:function``. It has the contract of confluent-kafka's ``oauth_cb``: it is given the text of
``sasl.oauthbearer.config`` and returns the token and the time at which it expires, in seconds since
1970; then, optionally, the principal and a dictionary of extensions.

A client constructed with an ``oauth_cb`` waits ten seconds for a token that does not come, and its
error gives no reason. `with_tokens` therefore obtains the first token before there is a client.
Whatever the number of clients and attempts, one thread runs a plugin at a time, so that one that
hangs costs one thread. Texts of a plugin's exceptions are never shown: they may have the token.
"""

from __future__ import annotations

import importlib
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Final, TypeAlias

__all__ = ["GROUP", "PLUGIN", "Token", "TokenError", "with_tokens"]

GROUP: Final = "pgsluice.kafka_tokens"
PLUGIN: Final = "sasl.oauthbearer.plugin"
_CONFIG: Final = "sasl.oauthbearer.config"
_METHOD: Final = "sasl.oauthbearer.method"

Token: TypeAlias = tuple[Any, ...]
"""Token, expiry in seconds since 1970, and optionally principal and extensions."""

_Plugin: TypeAlias = Callable[[str], Token]

_WAIT_S: Final = 8.0
"""How long a client waits for its token: less than confluent-kafka's ten seconds."""
_REUSE_S: Final = 60.0
"""Longest age at which a token is given to another client; each asks for its own renewal."""
_LATEST_S: Final = 366 * 86_400.0
"""Longest life of a token; a time in milliseconds would be beyond it."""
_NAME: Final = re.compile("(?!auth$)[A-Za-z]+")
_VALUE: Final = re.compile("[\\t\\r\\n -~]*")
"""Names and values of extensions. Source: RFC 7628; librdkafka's rdkafka_sasl_oauthbearer.c."""


class TokenError(Exception):
    """There is no token.

    Attributes:
        message: The reason, without any text of the plugin.
        hint: The remedy.
        may_pass: Whether it is worth another try.
    """

    def __init__(self, message: str, *, hint: str, may_pass: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.may_pass = may_pass


def with_tokens(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties for a client: the plugin's name replaced by its callback.

    They are returned as they are where no plugin is named. Otherwise a first token is obtained.

    Raises:
        TokenError: the plugin cannot be loaded, or has no token now.
    """
    given = dict(properties)
    name = given.pop(PLUGIN, None)
    if name is None:
        return given
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
    if mechanism != "OAUTHBEARER" or given.get(_METHOD, "default") != "default":
        raise TokenError(
            "a plugin gives tokens for another mechanism or method than is set",
            hint=f'set "sasl.mechanism" = "OAUTHBEARER", and remove "{_METHOD}"',
        )
    source = _source(str(name))
    config = str(given.get(_CONFIG, ""))
    source.token(config)
    return {**given, "oauth_cb": source.token}


@lru_cache(maxsize=16)
def _source(name: str) -> _TokenSource:
    return _TokenSource(name, _load(name))


def _load(name: str) -> _Plugin:
    """Return the function that is named.

    Raises:
        TokenError: there is none.
    """
    try:
        if ":" in name:
            module, _, path = name.partition(":")
            plugin: Any = importlib.import_module(module)
            for part in path.split("."):
                plugin = getattr(plugin, part)
        else:
            plugin = entry_points(group=GROUP)[name].load()
    except KeyError:
        known = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
        raise TokenError(
            f"there is no plugin {name!r}", hint=f"installed are: {known}; or write module:function"
        ) from None
    except Exception as error:  # anything that a foreign module does when it is imported
        raise TokenError(
            f"plugin {name!r} cannot be loaded ({type(error).__name__})",
            hint=f"try: python -c 'import {name.partition(':')[0]}' in this environment"
            if ":" in name
            else "install the package that it needs: pip install 'pgsluice[msk]' for msk",
        ) from None
    if not callable(plugin):
        raise TokenError(f"plugin {name!r} is no function", hint="name a function of one text")
    return plugin  # type: ignore[no-any-return]


@dataclass(slots=True)
class _Kept:
    """State for one text of configuration.

    Attributes:
        token: Last token; None before the first.
        reusable_until: Monotonic time until which it is given to further clients.
        running: The plugin's call that has not ended.
    """

    token: Token | None = None
    reusable_until: float = 0.0
    running: Future[Token] | None = None


@dataclass(slots=True)
class _TokenSource:
    """Tokens of one plugin, for all clients of the process."""

    name: str
    plugin: _Plugin
    guard: threading.Lock = field(default_factory=threading.Lock)
    kept: dict[str, _Kept] = field(default_factory=dict)

    def token(self, config: str | None) -> Token:
        """Return a token; the ``oauth_cb`` of the clients.

        Raises:
            TokenError: there is none within `_WAIT_S`.
        """
        text = config or ""
        with self.guard:
            kept = self.kept.setdefault(text, _Kept())
            if kept.token is not None and time.monotonic() < kept.reusable_until:
                return kept.token
            running = kept.running
            if running is None:
                running = Future()
                # A daemon thread: a plugin that hangs must not keep the process from ending.
                threading.Thread(
                    target=self._run, args=(text, kept, running), name="pgsluice token", daemon=True
                ).start()
                kept.running = running
        try:
            return running.result(_WAIT_S)
        except FutureTimeoutError:
            raise TokenError(
                f"plugin {self.name!r} has not returned a token within {_WAIT_S:g} s",
                hint="can its token service be reached from here? The call is still running",
                may_pass=True,
            ) from None

    def _run(self, text: str, kept: _Kept, running: Future[Token]) -> None:
        try:
            token = _checked(self.name, self.plugin(text))
        except TokenError as error:
            failure = error
        except BaseException as error:  # a plugin's exit must not leave its caller waiting
            failure = TokenError(
                f"plugin {self.name!r} has raised {type(error).__name__}",
                hint="call it by hand in this environment; its text is not shown, because it may "
                "have the token",
                may_pass=True,
            )
        else:
            with self.guard:
                kept.token, kept.running = token, None
                life = token[1] - time.time()
                kept.reusable_until = time.monotonic() + min(_REUSE_S, life / 2)
            running.set_result(token)
            return
        with self.guard:
            kept.running = None
        running.set_exception(failure)


def _checked(name: str, token: Any) -> Token:
    """Return what a plugin has returned, as the client takes it.

    Raises:
        TokenError: it is no token that can be used now.
    """
    hint = "it returns (token, expiry in seconds since 1970[, principal[, extensions]])"
    parts = tuple(token) if isinstance(token, tuple | list) else ()
    if not 2 <= len(parts) <= 4:
        raise TokenError(f"plugin {name!r} has returned no token", hint=hint)
    text, expiry, *rest = parts
    if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable():
        raise TokenError(f"plugin {name!r} has returned a token that is no ASCII text", hint=hint)
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not math.isfinite(expiry):
        raise TokenError(f"plugin {name!r} has returned an expiry that is no number", hint=hint)
    left_s = float(expiry) - time.time()
    if left_s <= 0:
        raise TokenError(
            f"plugin {name!r} has returned a token that has expired",
            hint="compare the clock of this machine with that of the token service",
            may_pass=True,
        )
    if left_s > _LATEST_S:
        raise TokenError(
            f"plugin {name!r} has returned an expiry more than a year away",
            hint="it is in seconds, not in milliseconds",
        )
    if rest and not isinstance(rest[0], str):
        raise TokenError(f"plugin {name!r} has returned a principal that is no text", hint=hint)
    if rest and "\0" in rest[0]:
        raise TokenError(f"plugin {name!r} has returned a principal with a zero byte", hint=hint)
    if len(rest) == 2 and not _are_texts(rest[1]):
        raise TokenError(f"plugin {name!r} has returned extensions that are no texts", hint=hint)
    # The client would wait for ten seconds and then say that there is no token.
    if len(rest) == 2 and not all(
        _NAME.fullmatch(key) and _VALUE.fullmatch(value) for key, value in rest[1].items()
    ):
        raise TokenError(
            f"plugin {name!r} has returned extensions that OAUTHBEARER does not have",
            hint="their names are of ASCII letters, and not auth; their values of printable ASCII",
        )
    return (text, float(expiry), *rest)


def _are_texts(extensions: Any) -> bool:
    return isinstance(extensions, dict) and all(
        isinstance(text, str) for pair in extensions.items() for text in pair
    )
