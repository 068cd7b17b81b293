"""Refusals of the job's user, wherever they come: retried, and only then the end of the job."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from spark_consumer.errors import AccessError, TransientConsumerError
from spark_consumer.job.job import _Watch
from spark_consumer.observe.health import Pulse
from spark_consumer.settings import ConsumerSettings
from spark_consumer.states.manifests import Manifest

if TYPE_CHECKING:
    from spark_consumer.job.subscription_query import Subscription

REFUSED = AccessError("the Kafka broker refuses access: SASL authentication error")
SETTINGS = ConsumerSettings(kafka={}, registry_url="", warehouse="/w", subscriptions=("s",))


class Pauses(threading.Event):
    """An event for which nobody waits in vain.

    Attributes:
        seconds: Pauses before another try.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None and timeout >= 1:
            self.seconds.append(timeout)
        return self.is_set()


class Scripted:
    """A subscription that is refused at a start, or in the markers that follow one.

    Args:
        starts: By start: None where the start itself is refused, else the number of markers
            applied until a micro-batch is. After the last one nothing is, and all is complete.
    """

    name = "s"
    held = None

    def __init__(self, starts: Iterable[int | None]) -> None:
        self.failure: AccessError | None = None
        self.manifest = Manifest("id")
        self.stopping = threading.Event()
        self._starts = deque(starts)

    def load(self) -> None:
        """There is nothing to load."""

    def is_complete(self) -> bool:
        return not self._starts and self.failure is None

    def is_there(self) -> bool:
        return True

    def start(self) -> Any:
        self.failure = None
        if self._starts:
            if (applied := self._starts.popleft()) is None:
                raise REFUSED
            self.manifest = Manifest("id", marker=self.manifest.marker + applied)
            self.failure = REFUSED
        return SimpleNamespace(isActive=False, stop=lambda: None)

    def report(self) -> None:
        """There is nothing to report."""

    def end_reason(self, query: object) -> AccessError | None:
        return self.failure


def watched(starts: Iterable[int | None]) -> Pauses:
    """Run a job of one subscription; its pauses."""
    pauses = Pauses()
    subscription = cast("Subscription", Scripted(starts))
    watch = _Watch(SETTINGS, [subscription], pauses, Pulse())
    try:
        watch.run()
    except AccessError:
        pauses.seconds.append(-1)
    return pauses


@pytest.mark.parametrize("refusal", [None, 0], ids=["start", "micro-batch"])
def test_a_user_who_is_refused_for_a_while_ends_nothing(refusal: int | None) -> None:
    assert watched([refusal] * 3).seconds == [1, 2, 4]


@pytest.mark.parametrize("refusal", [None, 0], ids=["start", "micro-batch"])
def test_a_user_who_is_refused_again_and_again_ends_the_job(refusal: int | None) -> None:
    assert watched([refusal] * 4).seconds == [1, 2, 4, -1]


def test_refusals_between_which_markers_are_applied_do_not_add_up() -> None:
    assert watched([5, 5, 5, 5, None]).seconds == [1, 1, 1, 1, 2]


def test_an_outage_outside_a_cut_ends_the_job_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: Scripted) -> bool:
        raise TransientConsumerError("the Kafka broker does not answer")

    monkeypatch.setattr(Scripted, "is_there", away)

    with pytest.raises(TransientConsumerError):
        watched([0])
