"""Kafka and the schema registry, each asked once, side by side, whether it answers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from gateway.commands.check.findings import Finding, Severity, fine
from gateway.config import Settings
from gateway.core.errors import GatewayError
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import describe_topics

__all__ = ["Services"]

_ONE_ATTEMPT: Final = {"max.retries": 0}


class Services:
    """Answers of Kafka and of the registry, which come while the source is being read.

    A service that does not answer is one finding, and nothing else is asked of it.
    """

    def __init__(self, settings: Settings, threads: ThreadPoolExecutor) -> None:
        self._progress = settings.topics.progress
        self._kafka: Future[bool] = threads.submit(_ask_kafka, settings)
        self._registry: Future[None] = threads.submit(_ask_registry, settings)
        self._reported = False

    def kafka_answers(self) -> bool:
        """Whether Kafka answers; waits until that is known."""
        return _error_of(self._kafka) is None

    def all_answer(self) -> bool:
        """Whether both answer; waits until that is known."""
        return self.kafka_answers() and _error_of(self._registry) is None

    def findings(self) -> Iterator[Finding]:
        """Yield what each of them has answered; nothing at the second call."""
        if self._reported:
            return
        self._reported = True
        error = _error_of(self._kafka)
        if error is None:
            made = "exists" if self._kafka.result() else "does not exist yet"
            yield fine(f"kafka: reached; topic {self._progress} {made}")
        else:
            yield _failed("kafka", error, unknown="topics")
        error = _error_of(self._registry)
        if error is None:
            yield fine("registry: reached")
        else:
            yield _failed("registry", error, unknown="owners of topics")


def _ask_kafka(settings: Settings) -> bool:
    """Return whether there is a progress topic."""
    name = settings.topics.progress
    return name in describe_topics(settings.kafka, [name], await_restart=False)


def _ask_registry(settings: Settings) -> None:
    with Registry({**_ONE_ATTEMPT, **settings.registry}) as registry:
        registry.check()


def _error_of(answer: Future[bool] | Future[None]) -> GatewayError | None:
    """Return why there is no answer; errors that are no service's are raised."""
    error = answer.exception()
    if error is not None and not isinstance(error, GatewayError):
        raise error
    return error


def _failed(part: str, error: GatewayError, *, unknown: str) -> Finding:
    then = f"then run `pgsluice check` again: the {unknown} have not been checked"
    hint = then if error.hint is None else f"{error.hint}\n{then}"
    return Finding(Severity.ERROR, f"{part}: {error.message}", hint)
