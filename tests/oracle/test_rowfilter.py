"""Random filters on random rows: the server and the gateway must say the same of each.

PGSLUICE_ORACLE_SEED repeats a run, PGSLUICE_ORACLE_PAIRS (default 100000) sets its size: how many
pairs of a filter and a row are compared.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest

from gateway.rowfilter.types import PARSERS
from tests.oracle.filters.expressions import Expressions
from tests.oracle.filters.judge import Judge
from tests.oracle.filters.known import implemented
from tests.oracle.filters.server import Table, create_table
from tests.oracle.filters.signatures import read_signatures
from tests.servers import Database

pytestmark = pytest.mark.postgres

ROWS: Final = 40
BATCH: Final = 50
"""Filters that are asked about in one go."""

DOCUMENTED: Final = re.compile(
    "|".join(
        (
            "under collation .* cannot be reproduced",
            "strings in jsonb are ordered under the collation of the database",
            r'operator "[<>]=?" is not supported for jsonb\[\]',
            r"array_(larger|smaller)\(jsonb\[\], jsonb\[\]\) is not supported",
            "(pattern|options|path|type modifier) must be (a )?constant",
            "its time zone is not constant",
            "its time zone depends on the server, on its settings or time zone data",
            "cannot be reproduced, it has a back reference",
            "releases of PostgreSQL differ",
            "before PostgreSQL 17",
            "the errors of methods that convert values are supported only if silent",
            r"the id that .keyvalue\(\) gives depends on how values are stored",
            # What follows fails on the server as well, unless it is NULL or not reached.
            "such values do not have this type modifier",
            r"could not identify (a comparison function|an equality operator) for type",
            r'(operator "\S+"|function \w+) ?.* (json|jsonpath|xid|cid)\[\]',
            r"function \w+\((json|jsonpath|xid|cid)\[\]",
        )
    )
)
"""Reasons for refusing what the server accepts that docs/row-filters.md gives."""


@dataclass(slots=True)
class Run:
    """What came of the filters so far."""

    compared: int = 0
    natively: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
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
            if lines and lines[0].startswith("refused: "):
                why = lines[0].removeprefix("refused: ")
                self.refused[why] += 1
                self.examples.setdefault(why, text)
                continue
            self.truths.update(
                "error" if error else value
                for value, error in zip(found.values, found.errors, strict=True)
            )
            self.compared += len(table.rows)
            self.differences += [f"{expression}\n  as {text}\n  {line}" for line in lines[:1]]


@pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)
def test_the_gateway_agrees_with_the_server_on_random_filters(database: Database) -> None:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    pairs = int(os.environ.get("PGSLUICE_ORACLE_PAIRS") or 100000)
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    random, run, tried = Random(seed), Run(), 0
    with database.connect() as connection:
        table = create_table(connection, random, sorted(PARSERS), ROWS)
        keys = implemented(connection.info.server_version // 10000)
        generator = Expressions(table, random, read_signatures(connection), keys, PARSERS.keys())
        judge = Judge(table)
        while run.compared < pairs and tried < pairs:
            filters = [generator.filter() for _ in range(BATCH)]
            tried += BATCH
            run.take(table, judge, filters)

    print(f"{tried} filters, {run.compared} pairs compared")
    print(f"answers of the server: {dict(run.truths)}")
    print(f"refused by the server: {run.natively.most_common(8)}")
    print(f"refused by the gateway: {run.refused.most_common(20)}")
    undocumented = {
        why: (number, run.examples[why])
        for why, number in run.refused.most_common()
        if not DOCUMENTED.search(why)
    }
    assert not run.differences, (
        f"seed {seed}, {len(run.differences)} filters differ:\n" + "\n".join(run.differences[:20])
    )
    assert not undocumented, f"seed {seed}, refused without a documented reason: {undocumented}"
    assert run.compared >= pairs, f"the server accepted too few of {tried} filters"
