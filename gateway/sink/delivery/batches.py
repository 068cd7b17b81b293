"""Production of many records in one C call, through confluent-kafka's client.

`gateway/_speedups/producing` explains how and why. Everything else about the client stays with
confluent-kafka, including the records whose delivery is to be reported. If the module was not
built, or ``PGSLUICE_INTERPRETED=1`` is set, records are produced one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from confluent_kafka import cimpl

from gateway._speedups.layouts import place_of
from gateway._speedups.loader import load_compiled, why_switched_off
from gateway.core.records import Record

__all__ = ["Place", "Places", "ProduceBatch", "find_places", "make_batches", "why_one_by_one"]

ProduceBatch: TypeAlias = Callable[[list[Record], int, int], tuple[int, int]]
"""Function of records, start and end that returns where it stopped, and librdkafka's error code, or
0."""

Place: TypeAlias = tuple[str, int]
"""Place of a record: topic and partition."""

Places: TypeAlias = dict[Place, tuple[int, int, int]]
"""Number of records for each place, and the indexes of the first and the last."""

_PLUGINS: Final = "plugin.library.paths"
_Client = TypeVar("_Client")


_PRODUCING: Final = load_compiled("producing", library=cimpl.__file__)


def why_one_by_one() -> str | None:
    """Return why records are produced one by one; None if they are not."""
    if isinstance(_PRODUCING, str):
        return _PRODUCING
    if ";" in str(_PRODUCING.__file__):
        return "librdkafka accepts no path with a semicolon"
    return why_switched_off()


def find_places(records: list[Record]) -> Places:
    """Return the places of `records`."""
    if not isinstance(_PRODUCING, str) and why_switched_off() is None:
        found: Places = _PRODUCING.places(records)
        return found
    places = list(map(place_of, records))
    counts, top = Counter(places), len(places) - 1
    first = {place: top - index for index, place in enumerate(reversed(places))}
    last = {place: index for index, place in enumerate(places)}
    return {place: (count, first[place], last[place]) for place, count in counts.items()}


def make_batches(
    make: Callable[[dict[str, Any]], _Client], properties: Mapping[str, Any]
) -> tuple[_Client, ProduceBatch | None]:
    """Create a producer, and the function that produces many records, or None.

    The function must not be called, nor be running, when the producer is released.

    Args:
        make: Constructor of the producer, called in this thread.
        properties: Properties of the producer.
    """
    if isinstance(_PRODUCING, str) or why_one_by_one() is not None:
        return make(dict(properties)), None
    user = properties.get(_PLUGINS)
    paths = ";".join(filter(None, (user, _PRODUCING.__file__)))
    try:
        client = make({**properties, _PLUGINS: paths})
    finally:
        batches = _PRODUCING.pop()
    return client, None if batches is None else batches.produce
