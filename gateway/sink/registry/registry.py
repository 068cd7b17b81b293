"""Registration of schemas by Confluent's API."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from gateway.core.background import OnWait, call_in_background, keep_waiting
from gateway.core.closing import Closing
from gateway.core.errors import (
    AccessError,
    ConfigError,
    FatalError,
    GatewayError,
    SchemaRefusedError,
    TransientError,
)
from gateway.sink.registry.apicurio import accept_any
from gateway.sink.registry.client import Schema, SchemaRegistryClient, SchemaRegistryError
from schemas.registry_trust import without_unused_authorities

__all__ = ["Registry"]

# The client logs every request with its URL at INFO, user information included.
logging.getLogger("httpx").setLevel(logging.WARNING)
logging.getLogger("httpx2").setLevel(logging.WARNING)

_AT_ONCE: Final = 8
"""Requests under way at a time: a registry answers one in some milliseconds, most of it a wait."""
_INCOMPATIBLE: Final = 409
_UNPROCESSABLE: Final = 422
_NO_SCHEMA: Final = (ValueError, LookupError, TypeError, AttributeError)
"""Errors of the client when the answer is not JSON, or not the JSON of a schema."""
_NUMBERS: Final = ("timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms")
_DEFAULTS: Final[Mapping[str, float]] = {
    "timeout": 10.0,
    "max.retries": 2,
    "retries.wait.ms": 200,
    "retries.max.wait.ms": 2000,
}
_REQUESTS: Final = 4
"""Maximum number of requests for one id."""
_LONGEST_REASON: Final = 500
"""Number of characters of an answer that are shown: it may be a page of HTML."""
_Result = TypeVar("_Result")
_USER_IN_URL: Final = re.compile(r"//[^/@\s]*@")


class Registry(Closing):
    """`gateway.routing.ports.SchemaIds` that remembers what it has registered.

    Every subject is given the compatibility level BACKWARD before its first schema, unless the
    registry's global level is one that includes it; that of a key gets NONE when the key changes.

    Args:
        properties: ``url`` and further properties of Confluent's client, as
            ``basic.auth.user.info``; ``timeout`` in seconds per request.
        on_wait: Callback of a wait for an answer; its exception is raised here at once.

    Raises:
        ConfigError: a property is missing, or the client does not accept it.
    """

    def __init__(
        self,
        properties: Mapping[str, str | int | float | bool],
        *,
        on_wait: OnWait = keep_waiting,
    ) -> None:
        if not properties.get("url"):
            raise ConfigError("is missing", key="registry.url")
        self._place = _place_of(str(properties["url"]))
        merged: dict[str, Any] = {**_DEFAULTS, **properties}
        for name in _NUMBERS:
            try:
                merged[name] = float(merged[name])
            except ValueError:
                raise ConfigError("not a number", key=f"registry.{name}") from None
        try:
            self._client = SchemaRegistryClient(without_unused_authorities(merged))
        except (ValueError, TypeError) as error:
            raise ConfigError(
                _redacted(str(error)),
                key="registry",
                hint="the properties are those of confluent_kafka.schema_registry",
            ) from None
        attempts = merged["max.retries"] + 1
        one_s = merged["timeout"] + merged["retries.max.wait.ms"] / 1000
        self._longest_s = _REQUESTS * attempts * one_s
        self._on_wait = on_wait
        self._ids: dict[tuple[str, str], int] = {}
        self._of_subjects: dict[str, threading.Lock] = {}
        self._known_subjects: set[str] = set()
        self._later: list[tuple[str, Mapping[str, Any]]] = []
        self._is_backward: bool | None = None

    def close(self) -> None:
        """Close the connections that are kept open between requests."""
        self._client.close()

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Return the id of `schema` under `subject`; see `SchemaIds.register`.

        The registered text keeps the order of the fields, so that the same schema always has the
        same text.

        Raises:
            SchemaRefusedError: the registry refuses it as incompatible with earlier versions.
            TransientError: the registry cannot be reached.
            AccessError: it refuses the user.
            FatalError: it refuses the request.
        """
        text = _text_of(schema)
        found = self._ids.get((subject, text))
        if found is None:
            found = self._call(lambda: self._id_of(subject, text), self._on_wait)
        return found

    def request(self, schemas: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Register many schemas, several at a time, so that `register` need not ask for their ids.

        No error is raised, but by the callback of a wait: what the registry refuses, or does not
        answer, `register` asks for again. After the first failure nothing more is asked for.

        Args:
            schemas: Subjects and their schemas.
        """
        threads = self._workers(schemas)

        def work_together() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        self._call(work_together, self._on_wait)

    def request_later(self, schemas: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Register many schemas once `send_later` is called; nobody waits for the answers.

        `register` waits for the id of a schema that has not been answered yet, as for any other.
        """
        self._later.extend(schemas)

    def send_later(self) -> None:
        """Begin to register what `request_later` has been given, one after the other."""
        later, self._later = self._later, []
        if later:
            for thread in self._workers(later, at_once=1):
                thread.start()

    def _workers(
        self, schemas: Iterable[tuple[str, Mapping[str, Any]]], at_once: int = _AT_ONCE
    ) -> Sequence[threading.Thread]:
        keys = ((subject, _text_of(schema)) for subject, schema in schemas)
        unknown: Iterator[tuple[str, str]] = iter([key for key in keys if key not in self._ids])
        lock = threading.Lock()

        def work() -> None:
            nonlocal unknown
            while True:
                with lock:
                    key = next(unknown, None)
                if key is None:
                    return
                try:
                    self._id_of(*key)
                except SchemaRefusedError:
                    continue
                except GatewayError:
                    with lock:
                        unknown = iter(())
                    return

        # Daemon threads, as in `call_in_background`.
        return [threading.Thread(target=work, daemon=True) for _ in range(at_once)]

    def _id_of(self, subject: str, text: str) -> int:
        """Ask for an id, unless another thread is asking for it, or has.

        When two threads ask for a key's schema, one could set the subject's level to BACKWARD after
        the other has set NONE and before it registers, and the schema would be refused.
        """
        with self._of_subjects.setdefault(subject, threading.Lock()):
            found = self._ids.get((subject, text))
            if found is None:
                found = self._ids[subject, text] = self._ask_for_id(subject, text)
            return found

    def _ask_for_id(self, subject: str, text: str) -> int:
        try:
            self._prepare(subject)
            try:
                return self._client.register_schema(subject, Schema(text, "AVRO"))
            except SchemaRegistryError as error:
                if error.http_status_code != _INCOMPATIBLE or not subject.endswith("-key"):
                    raise
                # The table has another key, and is copied again: nobody reads old keys as new ones.
                self._client.set_compatibility(subject, level="NONE")
                accept_any(self._client, subject)
                return self._client.register_schema(subject, Schema(text, "AVRO"))
        except Exception as error:  # the HTTP library's own classes, whichever library it is
            raise self._classify(error, subject) from None

    def _call(self, work: Callable[[], _Result], on_wait: OnWait = keep_waiting) -> _Result:
        """Return the result of requests, unless no id comes for too long.

        The client's timeout is for each read of its socket: a byte now and then keeps it waiting.

        Raises:
            TransientError: the registry has not answered; a thread still waits for it.
        """
        known, until = len(self._ids), time.monotonic() + self._longest_s

        def wait_on() -> None:
            nonlocal known, until
            on_wait()
            if len(self._ids) != known:
                known, until = len(self._ids), time.monotonic() + self._longest_s
            elif time.monotonic() >= until:
                raise TransientError(
                    f"the schema registry at registry.url ({self._place}) has not answered in "
                    f"{self._longest_s:.0f} s",
                    hint="its answers come too slowly, or never end: look at the registry, and at "
                    "proxies before it",
                )

        return call_in_background(work, on_wait=wait_on)

    def find_text(self, schema_id: int) -> str | None:
        """Return the schema of an id, as registered; None if the registry has none.

        An empty text means that it returns no schema for this id, but does for others.

        Raises:
            TransientError: the registry cannot be reached, or fails.
            AccessError: it refuses the user.
            FatalError: it refuses the request.
        """
        return self._call(lambda: self._find_text(schema_id))

    def _find_text(self, schema_id: int) -> str | None:
        try:
            text: object = self._client.get_schema(schema_id).schema_str
            return text if isinstance(text, str) else ""
        except Exception as error:  # as above
            if isinstance(error, SchemaRegistryError):
                if error.http_status_code == 404:
                    return None
                is_broken = error.http_status_code in (400, 406, _INCOMPATIBLE, 410, _UNPROCESSABLE)
            else:
                is_broken = isinstance(error, _NO_SCHEMA)
            failure = self._classify(error, "")
        finally:
            self._client.clear_caches()  # type: ignore[no-untyped-call]  # they are unbounded
        if is_broken:
            self.check()
            return ""
        raise failure

    def check(self) -> None:
        """Fetch the subjects, to check whether the registry answers.

        Raises:
            TransientError: the registry cannot be reached.
            AccessError: it refuses the user.
            FatalError: it refuses the request.
        """
        try:
            self._call(self._client.get_subjects)
        except Exception as error:  # as above
            raise self._classify(error, "") from None

    def _prepare(self, subject: str) -> None:
        if subject in self._known_subjects:
            return
        if self._is_backward is None:
            self._is_backward = _includes_backward(self._client.get_compatibility())
        if not self._is_backward:
            self._client.set_compatibility(subject, level="BACKWARD")
        self._known_subjects.add(subject)

    def _classify(self, error: Exception, subject: str) -> GatewayError:
        what = f"the schema registry at registry.url ({self._place})"
        of = f" of subject {subject}" if subject else ""
        if isinstance(error, GatewayError):
            return error
        if not isinstance(error, SchemaRegistryError):
            return TransientError(
                f"{what} cannot be reached: {type(error).__name__}: {_redacted(str(error))}",
                hint="start it, or correct registry.url",
            )
        reason = _redacted(str(error.error_message or "it gives no reason"))
        if error.http_status_code in (_INCOMPATIBLE, _UNPROCESSABLE):
            return SchemaRefusedError(
                f"{what} refuses the schema{of}: {reason}",
                hint="the table changed in a way that is incompatible with earlier records: "
                "publish it under another topic ([topics] names), or, if nobody reads those "
                "records any more, delete the subject's old versions",
            )
        if error.http_status_code in (401, 403):
            return AccessError(
                f"{what} refuses the request: {reason} (HTTP {error.http_status_code})",
                hint='check "basic.auth.user.info" in [registry], and the rights of this user',
            )
        if error.http_status_code == 404:
            return FatalError(
                f"{what} does not have Confluent's API: {reason}",
                hint="with Apicurio the url ends in /apis/ccompat/v7",
            )
        if error.http_status_code >= 500 or error.http_status_code == 429:
            return TransientError(f"{what} failed: {reason} (HTTP {error.http_status_code})")
        status = f"HTTP {error.http_status_code}"
        if 300 <= error.http_status_code < 400:
            return FatalError(
                f"{what} sends the request{of} to another address ({status})",
                hint="set registry.url to the address that answers: redirects are not followed, "
                "since they could take the password elsewhere",
            )
        return FatalError(
            f"{what} refuses the request{of}: {reason} ({status})",
            hint="check that registry.url is that of a schema registry with Confluent's API",
        )


def _text_of(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def _includes_backward(level: object) -> bool:
    return str(level).upper() in ("BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")


def _place_of(url: str) -> str:
    """Return only scheme, host and port of each of the comma-separated URLs."""
    places = []
    for part in url.split(","):
        split = urlsplit(part.strip())
        places.append(f"{split.scheme}://{split.netloc.rpartition('@')[2]}")
    return ",".join(places)


def _redacted(text: str) -> str:
    shown = _USER_IN_URL.sub("//***@", " ".join(text.split()))
    return shown if len(shown) <= _LONGEST_REASON else f"{shown[:_LONGEST_REASON]}..."
