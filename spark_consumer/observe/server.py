"""Metrics and health of the job over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from spark_consumer.display import shown
from spark_consumer.errors import SettingsError
from spark_consumer.observe.bounded_http import BoundedServer, answering
from spark_consumer.observe.figures import Figures
from spark_consumer.observe.health import Pulse, health, readiness
from spark_consumer.observe.metrics import exposition

__all__ = ["serve"]

_CONTENT: Final = "text/plain; version=0.0.4; charset=utf-8"


@contextmanager
def serve(
    listen: str | None, hosts: Collection[str], subscriptions: dict[str, Figures], pulse: Pulse
) -> Iterator[int | None]:
    """Answer ``GET`` of ``/metrics``, ``/healthz`` and ``/readyz`` while the block runs.

    Args:
        listen: Address as ``host:port``; port 0 is any free one. None to serve nothing.
        hosts: Names under which requests are answered, beside that of `listen`.
        subscriptions: Figures by subscription; they may change meanwhile.
        pulse: Heartbeat of the job's loop.

    Returns:
        The port; None when nothing is served.

    Raises:
        SettingsError: `listen` cannot be used.
    """
    if listen is None:
        yield None
        return
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")

    def answer(path: str) -> tuple[int, str]:
        match path:
            case "/metrics":
                return 200, exposition(subscriptions)
            case "/healthz":
                return _verdict(health(pulse, subscriptions))
            case "/readyz":
                return _verdict(readiness(pulse, subscriptions))
        return 404, "see /metrics, /healthz and /readyz\n"

    try:
        handler = answering(answer, _CONTENT, {host, *hosts})
        server = BoundedServer((host, int(port)), handler)
    except (ValueError, OSError) as error:
        raise SettingsError(f"metrics_listen: {listen!r} cannot be used: {error}") from error
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _verdict(why_not: str | None) -> tuple[int, str]:
    return (200, "ok\n") if why_not is None else (503, f"{shown(why_not)}\n")
