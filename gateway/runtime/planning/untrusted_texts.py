"""Untrusted texts: conditions and filters of the progress topic, checked before they are used.

Any client with write access can write to the topic. Its records have the shape of a gateway's
(`gateway.envelope.progress`); here the source checks whether their expressions may be part of a
statement, by the rules for what a person types.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import psycopg

from gateway.copy import Progress
from gateway.core.errors import TransientError
from gateway.core.watermark import CopyRequest, CopyState
from gateway.definitions.model import Plan
from gateway.definitions.requests import concerned
from gateway.observe import Counters, event
from gateway.sink.delivery.committed_state import CommittedState
from gateway.source.filters.conditions import check_condition, refuse_text

__all__ = ["refused_requests", "trusted_progress"]

_LOG: Final = logging.getLogger(__name__)
_MOST_NAMED: Final = 20
"""Number of problems in the log: a writer of the topic could cause any number of them."""
_LONGEST: Final = 500


def trusted_progress(
    connection: psycopg.Connection, recovered: CommittedState, counters: Counters
) -> CommittedState:
    """Return `recovered` without texts that may not be part of a statement; log those ignored.

    Raises:
        TransientError: the connection is gone.
    """
    problems = list(recovered.unreadable)
    watermark = recovered.watermark
    if watermark is not None:
        states = tuple(_checked(connection, state, problems) for state in watermark.copies)
        if states != watermark.copies:
            recovered = replace(recovered, watermark=replace(watermark, copies=states))
    for problem in problems[:_MOST_NAMED]:
        what = problem if len(problem) <= _LONGEST else f"{problem[:_LONGEST]}..."
        event(_LOG, logging.WARNING, "record of the progress topic passed over", what=what)
    if (more := len(problems) - _MOST_NAMED) > 0:
        event(_LOG, logging.WARNING, "more records of the progress topic passed over", records=more)
    counters.passed_over += len(problems)
    return recovered


def _checked(connection: psycopg.Connection, state: CopyState, problems: list[str]) -> CopyState:
    name = f"copy {state.subscription}.{state.schema}.{state.table}"
    if state.asked and (why := refuse_text(connection, [state.asked])) is not None:
        problems.append(f"{name}: its condition: {why}")
        state = replace(state, asked="", progress=Progress())
    if state.taken and (why := refuse_text(connection, _filters(state.taken))) is not None:
        problems.append(f"{name}: how it was published: a filter: {why}")
        state = replace(state, taken="")
    return state


def _filters(taken: str) -> Iterable[str]:
    return {
        text
        for publish in json.loads(taken)["publishes"]
        for clauses in publish["filters"].values()
        for _, text in clauses
    }


def refused_requests(
    connection: psycopg.Connection, plan: Plan, requests: Sequence[CopyRequest]
) -> Mapping[str, str]:
    """Return, by the name of a request, the reason for which its condition is refused."""
    refused: dict[str, str] = {}
    for request in requests:
        if not request.where or request.cancel:
            continue
        for oid in sorted({copy.target_oid for copy in concerned(plan, request)}):
            table = plan.tables[oid]
            try:
                why = check_condition(connection, table, request.where)
            except TransientError as error:  # a request never keeps a gateway from starting
                why = f"it cannot be looked at now: {error.message}"
            if why is not None:
                refused[request.name] = f"table {table}: the condition is refused: {why}"
    return refused
