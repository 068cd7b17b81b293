"""Trust in markers: their writers, and the topics that they name.

A marker that names topics of other subscriptions, or was written by another gateway than the owner
of the topics, is skipped, logged and counted, and so is a record that is no marker. Impossible
offsets hold the table; see `spark_consumer.kafka.position`. A forged marker with the owner's name
cannot be distinguished from the owner's own: the broker's ACLs decide who may write to the topic.
An LSN that is less than the previous one withdraws what that one claimed: the lesser one counts,
since otherwise a single forged marker would cause all that follow to be refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.topic_names import topic_part
from spark_consumer.kafka.markers import Claim, Copy, Damaged, Marker, MarkerRecord, Owner
from spark_consumer.names import lsn_text, transaction_topic

__all__ = ["Refused", "Witness", "owner_before", "warnings"]

_MOST_NAMED: Final = 20
"""Most markers that are logged one by one: a writer of the topic can produce any number."""
_LONGEST: Final = 500
_NAME: Final = re.compile("[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Refused:
    """A marker that is skipped, and the reason."""

    offset: int
    reason: str


class Witness:
    """Judge of the markers of one subscription, in the order of their topic.

    Args:
        subscription: Name of the subscription.
        topics: Names that its tables' topics may have beside the usual ones.
        owner: Writer of the previous markers; None if not known.
        end_lsn: LSN of the previous marker.

    Attributes:
        owner: Current writer; None if not known.
        withdrawn: Offsets of markers whose LSN is less than the previous one, and both LSNs.
    """

    def __init__(
        self, subscription: str, topics: Collection[str], owner: Owner | None, end_lsn: int = 0
    ) -> None:
        self.owner = owner
        self.withdrawn: list[tuple[int, int, int]] = []
        self._prefix = f"{topic_part(subscription)}."
        self._marker_topic = transaction_topic(subscription)
        self._topics = frozenset(topics)
        self._end_lsn = end_lsn
        self._copying = False

    def judge(self, read: Iterable[MarkerRecord]) -> Iterator[Marker | Copy | Refused]:
        """Yield trusted markers unchanged, and others as `Refused`; trusted claims are consumed."""
        for one in read:
            reason = self._why_not(one)
            if reason is not None:
                yield Refused(one.offset, reason)
            elif isinstance(one, Marker | Copy):
                yield one

    def _why_not(self, one: MarkerRecord) -> str | None:
        if isinstance(one, Damaged):
            return one.reason
        if isinstance(one, Claim) and self.owner is not None and one.taken_from == self.owner:
            self.owner = one.writer
        if self.owner is None:
            self.owner = one.writer
        elif one.writer != self.owner:
            writer = "an unnamed writer" if one.writer is None else _named(one.writer)
            return f"it was written by {writer}, and the topics are those of {_named(self.owner)}"
        if isinstance(one, Copy):
            # A copy may begin at a lesser LSN: the source was restored.
            self._copying |= one.state in ("pending", "copying")
        elif isinstance(one, Marker):
            if (reason := self._claims(one)) is not None:
                return reason
            if one.end_lsn < self._end_lsn and not self._copying:
                self.withdrawn.append((one.offset, one.end_lsn, self._end_lsn))
            self._end_lsn, self._copying = one.end_lsn, False
        return None

    def _claims(self, marker: Marker) -> str | None:
        if not 0 <= marker.end_lsn < 1 << 63:
            return f"end_lsn {marker.end_lsn} is no LSN"
        for topic in marker.ranges:
            if not self._is_ours(topic):
                return f"it names topic {topic}, which is not one of this subscription's"
        return None

    def _is_ours(self, topic: str) -> bool:
        usual = topic.startswith(self._prefix) and topic != self._marker_topic
        # Kafka refuses requests for a name that no topic can have.
        return (usual and _NAME.fullmatch(topic) is not None) or topic in self._topics


def owner_before(read: Sequence[MarkerRecord], owner: Owner | None) -> Owner | None:
    """Return the owner of the topics before the first of some markers.

    Args:
        read: Markers in the order of their topic.
        owner: Owner after the last of them; None if not known.
    """
    for one in reversed(read):
        if isinstance(one, Claim) and one.taken_from is not None and one.writer == owner:
            owner = one.taken_from
    return owner


def warnings(
    subscription: str, refused: Sequence[Refused], withdrawn: Sequence[tuple[int, int, int]]
) -> Iterator[str]:
    """Yield log lines about markers that were read together: few, however many there are."""
    for one in refused[:_MOST_NAMED]:
        reason = one.reason if len(one.reason) <= _LONGEST else f"{one.reason[:_LONGEST]}..."
        yield f"marker skipped: subscription={subscription} offset={one.offset}: {reason}"
    if (more := len(refused) - _MOST_NAMED) > 0:
        yield f"more markers skipped: subscription={subscription} markers={more}"
    for offset, lesser, greater in withdrawn[:_MOST_NAMED]:
        yield (
            f"LSN goes backwards: subscription={subscription} marker={offset}"
            f" end_lsn={lsn_text(lesser)} before={lsn_text(greater)}"
        )


def _named(owner: Owner) -> str:
    system, database, slot = owner
    return f"slot {slot!r} of database {database!r} on system {system}"
