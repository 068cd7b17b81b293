"""HTTP endpoints for metrics, health, status and the page, in threads of their own.

The endpoints are read-only and share no lock with the loop: they show what the loop has posted. The
answers contain no column value and no secret; restricting access is left to the network.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from gateway.config import Settings
from gateway.core.errors import ConfigError
from gateway.envelope.envelope import package_version
from gateway.monitor.health import lag_seconds, muted, why_not_alive, why_not_ready
from gateway.monitor.hosts import is_own_host
from gateway.monitor.http_server import serving
from gateway.monitor.metrics import CONTENT_TYPE, Exposition
from gateway.monitor.page.document import SECURITY, fragment, page
from gateway.monitor.page.selection import Selection
from gateway.monitor.status import table_notices
from gateway.monitor.watch import Watch
from gateway.observe import RecentErrors

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["serve"]

_TEXT: Final = "text/plain; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"

Answer = tuple[int, str, bytes]
"""Answer: status code, content type, body."""


class _Endpoints:
    """Answers of the endpoints, by path."""

    def __init__(self, settings: Settings, watch: Watch, recent_errors: RecentErrors) -> None:
        self._settings = settings
        self._watch = watch
        self._recent_errors = recent_errors
        self._metrics = Exposition(
            lambda: watch.figures, watch.status, recent_errors.counts, settings.source.slot
        )
        self.paths: Mapping[str, Callable[[str], Answer]] = {
            "/": lambda query: self._shown(page, query),
            "/fragment": lambda query: self._shown(fragment, query),
            "/metrics": lambda _: (200, CONTENT_TYPE, self._metrics.text()),
            "/healthz": lambda _: self._verdict(why_not_alive),
            "/readyz": lambda _: self._ready(),
            "/status": lambda _: (
                200,
                _JSON,
                json.dumps(self.status(), indent=2).encode() + b"\n",
            ),
        }

    def _shown(self, make: Callable[..., str], query: str) -> Answer:
        text = make(self.status(), self._watch.history(), Selection.parse(query))
        return 200, _HTML, text.encode()

    def _verdict(self, why_not: Callable[..., list[str]]) -> Answer:
        figures = self._watch.figures
        reasons = why_not(figures, time.monotonic(), time.time())
        phase = "starting" if figures is None else figures.phase
        text = "\n".join(reasons or [f"ok: {phase}"]) + "\n"
        return 503 if reasons else 200, _TEXT, text.encode()

    def _ready(self) -> Answer:
        """Answer ``/readyz``.

        The answer names held tables, tables whose rows move, and unreachable servers, none of which
        alone makes the gateway unready.
        """
        most = self._settings.monitor.max_lag_s
        code, content, body = self._verdict(partial(why_not_ready, max_lag_s=most))
        status = self._watch.status()
        tables = () if status is None else status.tables
        named = table_notices(tables)
        if status is not None:
            named = [muted(name, why) for name, why in status.muted.items()] + named
            text = body.decode()
            away = (*status.denied, *status.silent.values())
            named = [one for one in away if one not in text] + named
        return code, content, body + "".join(f"{one}\n" for one in named).encode()

    def status(self) -> dict[str, Any]:
        """Return the output of ``pgsluice status --json`` plus the daemon's own figures."""
        figures, status = self._watch.figures, self._watch.status()
        found: dict[str, Any] = {
            "gateway": {
                "name": self._settings.gateway.name,
                "version": package_version(),
                "started_at": self._watch.started_at,
                "phase": "starting" if figures is None else figures.phase,
                "lag_seconds": None if figures is None else lag_seconds(figures, time.time()),
                "records": 0 if figures is None else figures.records,
            }
        }
        if status is not None:
            found |= status.as_json()
        if figures is not None:
            found["rows"] = [
                {"subscription": s, "table": t, "operation": operation, "rows": rows}
                for (s, t, operation), rows in figures.rows.items()
            ]
            found["filters"] = [
                {"subscription": s, "table": t, "by": by} for (s, t), by in figures.filters.items()
            ]
            found["changed"] = [
                {"subscription": s, "table": t, "at": at}
                for (s, t), at in figures.changed_at.items()
            ]
            found["filtered"] = [
                {"subscription": s, "table": t, "rows": rows}
                for (s, t), rows in figures.filtered.items()
            ]
        found["log"] = [
            {
                "at": error.at,
                "level": error.level,
                "source": error.source,
                "message": error.message,
                "fields": dict(error.fields),
            }
            for error in self._recent_errors.latest()
        ]
        return found


@contextmanager
def serve(settings: Settings, watch: Watch, recent_errors: RecentErrors) -> Iterator[int | None]:
    """Serve the endpoints while the block runs.

    Returns:
        The port; None if ``[http] listen`` is not set and nothing is served.

    Raises:
        ConfigError: ``[http] listen`` cannot be used.
    """
    listen = settings.http.listen
    if listen is None:
        yield None
        return
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    endpoints = _Endpoints(settings, watch, recent_errors)
    with ExitStack() as stack:
        try:
            application = _application(endpoints.paths, {host, *settings.http.hosts})
            found = stack.enter_context(serving(application, host, int(port)))
        except OSError as error:
            raise ConfigError(
                f"{listen} cannot be used: {error.strerror}", key="http.listen"
            ) from None
        yield found


def _application(
    paths: Mapping[str, Callable[[str], Answer]], own_hosts: Collection[str]
) -> WSGIApplication:
    """Return the WSGI application."""
    known = f"see {', '.join(paths)}\n".encode()

    def answer(environ: WSGIEnvironment) -> Answer:
        if not is_own_host(environ.get("HTTP_HOST"), own_hosts):
            return 421, _TEXT, b"this name is not one of [http] hosts\n"
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return 405, _TEXT, b"GET or HEAD\n"
        endpoint = paths.get(environ["PATH_INFO"])
        return (
            (404, _TEXT, known) if endpoint is None else endpoint(environ.get("QUERY_STRING", ""))
        )

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        code, content, body = answer(environ)
        headers = [
            ("Content-Type", content),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        if content == _HTML:
            headers.append(("Content-Security-Policy", SECURITY))
        if code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        start_response(f"{code} {HTTPStatus(code).phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return application
