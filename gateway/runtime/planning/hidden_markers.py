"""Subscriptions that are left out because their markers cannot be read.

A gateway that does not know who owns the topics of a subscription may not write there. Somebody who
keeps their markers from being read must not keep the others from being published, so it is held
until a later look finds them, and its tables are copied then. Without a copy (`copy_data = false`)
it would lack for ever what is written in between: then all wait, and the error names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gateway.config import Settings
from gateway.core.errors import FatalError, HiddenMarkersError, TransientError
from gateway.core.names import transaction_topic
from gateway.definitions.model import Plan
from gateway.sink.own_topics.owners import read_owners
from gateway.sink.registry.registry import Registry

__all__ = [
    "WhyHidden",
    "errors_of",
    "left_out",
    "reasons_of",
    "refuse_unreadable",
    "still_hidden",
    "waiting_for_uncopied",
]

_LOOK_S: Final = 5.0
"""Seconds of a look at markers that could not be read before; it is repeated later."""


@dataclass(frozen=True, slots=True)
class WhyHidden:
    """Reason for which the markers of a subscription cannot be read, from the error that said so.

    The error itself would keep what its frames have, for as long as the subscription is left out.
    """

    message: str
    hint: str | None = None


def reasons_of(error: HiddenMarkersError) -> dict[str, WhyHidden]:
    """Return the reasons of an error by subscription."""
    return dict.fromkeys(error.subscriptions, WhyHidden(error.message, error.hint))


def errors_of(hidden: Mapping[str, WhyHidden], names: Collection[str]) -> dict[str, FatalError]:
    """Return the errors of the topics of markers of those named, by topic."""
    return {
        transaction_topic(name): FatalError(
            why.message,
            hint=why.hint or "only its gateway needs the right to write there",
            cause="markers",
        )
        for name, why in hidden.items()
        if name in names
    }


def left_out(plan: Plan, names: Collection[str]) -> frozenset[str]:
    """Return those subscriptions that can be left out, because their tables are copied later."""
    return frozenset(one.name for one in plan.subscriptions if one.copy_data and one.name in names)


@contextmanager
def waiting_for_uncopied(plan: Plan) -> Iterator[None]:
    """Name, in the hint of an error, the subscriptions that cannot be left out for it."""
    try:
        yield
    except HiddenMarkersError as error:
        hidden = error.subscriptions
        names = sorted(hidden - left_out(plan, hidden))
        if not names:
            raise
        raise HiddenMarkersError(
            error.message,
            subscriptions=hidden,
            hint=f"{', '.join(names)} cannot be left out meanwhile: with copy_data = false nothing "
            "copies what is written until its markers can be read",
        ) from None


def refuse_unreadable(failed_reads: Mapping[str, FatalError], names: Collection[str]) -> None:
    """Raise the error of a topic of markers that cannot be read, of one of those named.

    Raises:
        HiddenMarkersError: there is one; it may be readable later.
    """
    for name in sorted(names):
        if (error := failed_reads.get(transaction_topic(name))) is not None:
            raise HiddenMarkersError(error.message, subscriptions=[name], hint=error.hint)


def still_hidden(
    settings: Settings, registry: Registry, hidden: Mapping[str, WhyHidden]
) -> Mapping[str, WhyHidden]:
    """Return those of `hidden` whose markers cannot be read now, in a short time."""
    refused: dict[str, FatalError] = {}  # held for that, by who makes the plan
    try:
        read_owners(settings.kafka, registry, hidden, timeout_s=_LOOK_S, refused=refused)
    except HiddenMarkersError as error:
        return reasons_of(error)
    except TransientError:
        return hidden
    return {}
