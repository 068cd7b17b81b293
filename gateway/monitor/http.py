"""Metrics, health, status and a page over HTTP, in threads of their own.

Read only, and without a lock on anything of the loop's: what is shown is what the loop has posted.
No column value and no secret is in it; who may see it is the network's affair.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from gateway.config import Settings
from gateway.errors import ConfigError
from gateway.monitor.health import lag_seconds, why_not_alive, why_not_ready
from gateway.monitor.metrics import CONTENT_TYPE, Exposition
from gateway.monitor.page import SECURITY, fragment, page
from gateway.monitor.watch import Watch
from gateway.observe import Troubles

__all__ = ["serve"]

_TEXT: Final = "text/plain; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"
_REQUEST_S: Final = 10.0

Answer = tuple[int, str, bytes]
"""Status code, content type, body."""


class _Endpoints:
    """What is answered, by path."""

    def __init__(self, settings: Settings, watch: Watch, troubles: Troubles) -> None:
        self._settings = settings
        self._watch = watch
        self._troubles = troubles
        self._metrics = Exposition(
            lambda: watch.figures, watch.status, troubles.counts, settings.source.slot
        )
        self.paths: Mapping[str, Callable[[], Answer]] = {
            "/": lambda: (200, _HTML, page(self.status(), watch.history()).encode()),
            "/fragment": lambda: (200, _HTML, fragment(self.status(), watch.history()).encode()),
            "/metrics": lambda: (200, CONTENT_TYPE, self._metrics.text()),
            "/healthz": lambda: self._verdict(why_not_alive),
            "/readyz": lambda: self._verdict(why_not_ready),
            "/status": lambda: (200, _JSON, json.dumps(self.status(), indent=2).encode() + b"\n"),
        }

    def _verdict(self, why_not: Callable[..., list[str]]) -> Answer:
        figures = self._watch.figures
        reasons = why_not(figures, time.monotonic(), time.time())
        phase = "starting" if figures is None else figures.phase
        text = "\n".join(reasons or [f"ok: {phase}"]) + "\n"
        return 503 if reasons else 200, _TEXT, text.encode()

    def status(self) -> dict[str, Any]:
        """What ``pgsluice status --json`` prints, and what only the daemon knows."""
        figures, status = self._watch.figures, self._watch.status()
        found: dict[str, Any] = {
            "gateway": {
                "name": self._settings.gateway.name,
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
            found["filtered"] = [
                {"subscription": s, "table": t, "rows": rows}
                for (s, t), rows in figures.filtered.items()
            ]
        found["log"] = [
            {
                "at": trouble.at,
                "level": trouble.level,
                "source": trouble.source,
                "message": trouble.message,
                "fields": dict(trouble.fields),
            }
            for trouble in self._troubles.latest()
        ]
        return found


@contextmanager
def serve(settings: Settings, watch: Watch, troubles: Troubles) -> Iterator[int | None]:
    """Answer GET while the block runs.

    Returns:
        The port; None when ``[http] listen`` is not set and nothing is served.

    Raises:
        ConfigError: ``[http] listen`` cannot be used.
    """
    listen = settings.http.listen
    if listen is None:
        yield None
        return
    host, _, port = listen.rpartition(":")
    endpoints = _Endpoints(settings, watch, troubles)
    try:
        kind = _Server6 if host.startswith("[") else _Server
        server = kind((host.strip("[]"), int(port)), _handler(endpoints.paths))
    except OSError as error:
        raise ConfigError(f"{listen} cannot be used: {error.strerror}", key="http.listen") from None
    thread = threading.Thread(target=server.serve_forever, name="pgsluice http", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


class _Server6(_Server):
    address_family = socket.AF_INET6


def _handler(paths: Mapping[str, Callable[[], Answer]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S
        server_version = "pgsluice"
        sys_version = ""

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            answer = paths.get(self.path.partition("?")[0])
            known = ", ".join(paths)
            code, content, body = answer() if answer else (404, _TEXT, f"see {known}\n".encode())
            self.send_response(code)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            if content == _HTML:
                self.send_header("Content-Security-Policy", SECURITY)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing; a scrape is not news."""

    return Handler
