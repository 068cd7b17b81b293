"""Random filters on random rows: both evaluators, and mixtures, must say what the server says.

None that the server accepts is refused.

PGSLUICE_ORACLE_PAIRS (default 20000) sets its size: how many
pairs of a filter and a row are compared.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest

from gateway.routing.row.native import why_not_built
from gateway.source.filters.evaluator import ServerEvaluator
from tests.support.backends.servers import Database
from tests.support.filters.expressions import Expressions
from tests.support.filters.judge import Judge
from tests.support.filters.server import Table, create_table, every_type
from tests.support.filters.signatures import read_signatures
from tests.support.run.majors import alternating

pytestmark = pytest.mark.postgres

ROWS: Final = 40
BATCH: Final = 50
"""Filters that are asked about in one go."""


@dataclass(slots=True)
class Run:
    """What came of the filters so far."""

    compared: int = 0
    natively: Counter[str] = field(default_factory=Counter)
    truths: Counter[object] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def take(self, table: Table, judge: Judge, filters: list[str]) -> None:
        """Compare what server and gateway make of `filters`."""
        accepted = []
        for expression, (text, refusal) in zip(filters, table.renderings(filters), strict=True):
            if text is None:
                self.natively[str(refusal)] += 1
            else:
                accepted.append((expression, text))
        answers = table.answers([expression for expression, _ in accepted])
        for (expression, text), found in zip(accepted, answers, strict=True):
            lines = list(judge.truths(text, found))
            self.truths.update(
                "error" if error else value
                for value, error in zip(found.values, found.errors, strict=True)
            )
            self.compared += len(table.rows)
            self.differences += [f"{expression}\n  as {text}\n  {line}" for line in lines[:1]]


@alternating(__name__, 16, 18)
def test_the_gateway_agrees_with_the_server_on_random_filters(
    database: Database, seed: int
) -> None:
    pairs = int(os.environ.get("PGSLUICE_ORACLE_PAIRS") or 20000)
    random, run, tried = Random(seed), Run(), 0
    evaluator = ServerEvaluator(database.dsn, timeout_s=120, source_dsn=database.dsn)
    with database.connect() as connection, closing(evaluator):
        table = create_table(connection, random, every_type(), ROWS)
        signatures = read_signatures(connection)
        readable = {slot.type_oid for slot in table.slots}
        keys = {signature.key for signature in signatures}
        generator = Expressions(table, random, signatures, keys, readable)
        judge = Judge(table, evaluator)
        while run.compared < pairs and tried < pairs:
            filters = [generator.filter() for _ in range(BATCH)]
            tried += BATCH
            run.take(table, judge, filters)

    print(f"{tried} filters, {run.compared} pairs compared; {judge.here} filters evaluated here")
    print(f"{judge.compiled} of them also in C")
    print(f"answers of the server: {dict(run.truths)}")
    print(f"refused by the server: {run.natively.most_common(8)}")
    assert not run.differences, (
        f"seed {seed}, {len(run.differences)} filters differ:\n" + "\n".join(run.differences[:20])
    )
    assert run.compared >= pairs, f"the server accepted too few of {tried} filters"
    assert judge.here and judge.there and (judge.compiled or why_not_built() is not None)
