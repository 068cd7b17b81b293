"""A table at each end of a Kafka transaction, made as docs/envelope.md has readers make it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.support.gateway.process import Read
from tests.support.models.rebuild import Rebuilt

__all__ = ["CutState", "cuts"]


class CutState(NamedTuple):
    """A table at a PROGRESS marker.

    Attributes:
        complete: Whether its copy is ready and no row moves.
    """

    end_lsn: int
    table: Rebuilt
    complete: bool


def cuts(
    markers: Sequence[Mapping[str, Any]], records: Sequence[Read], topic: str, table: str
) -> Iterator[CutState]:
    """Yield the table of a topic with one partition at each PROGRESS that has a position.

    The same object each time: look at it before the next.
    """
    rebuilt = Rebuilt()
    rest = list(records)
    ready, moving = False, False
    for marker in markers:
        for name in ("copy", "move"):
            about = marker[name]
            if about is None or about["table"] != table:
                continue
            if name == "move":
                assert moving == (about["state"] == "settled"), "it begins once, and ends once"
                moving = about["state"] == "begun"
            else:
                ready = about["state"] == "ready"
                # A copy that begins puts an end to what moves; what begins then outlasts it.
                moving = moving and about["state"] != "copying"
        if marker["kind"] != "PROGRESS":
            continue
        for entry in marker["offsets"]:
            if entry["topic"] == topic:
                done = [record for record in rest if record.offset < entry["next_offset"]]
                rebuilt.apply(done)
                rest = rest[len(done) :]
        yield CutState(marker["end_lsn"], rebuilt, ready and not moving)
    assert not rest, "every record is before the end that a marker names"
