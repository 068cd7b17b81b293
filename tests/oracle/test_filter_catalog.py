"""Every built-in function that the gateway has: its value on random arguments is the server's.

PGSLUICE_ORACLE_SEED repeats a run, PGSLUICE_ORACLE_CALLS (default 1) multiplies its size.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest

from gateway.rowfilter import builtins
from gateway.rowfilter.types import PARSERS
from tests.oracle.filters.calls import Call, call, plain_argument
from tests.oracle.filters.hints import MODIFIERS
from tests.oracle.filters.judge import Judge
from tests.oracle.filters.known import implemented
from tests.oracle.filters.server import Answers, Table, create_table
from tests.oracle.filters.signatures import Signature, read_signatures
from tests.servers import Database

pytestmark = pytest.mark.postgres

ROWS: Final = 24
CALLS_PER_KEY: Final = 5
NEWEST: Final = 18
"""A server that has every function."""
ROUNDS: Final = 10
"""A key of which no call gave a value is tried again so often."""

NOT_EXERCISED: Final = {
    "make_interval": "refused before 17, where its seconds overflow as the machine has it",
}
"""Keys of which no call in a filter can be made on some server, and why."""


@dataclass(slots=True)
class Findings:
    """What came of the calls."""

    exercised: Counter[str] = field(default_factory=Counter)
    refused: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    differences: list[str] = field(default_factory=list)


def try_calls(table: Table, judge: Judge, calls: Sequence[Call], findings: Findings) -> None:
    """Ask server and gateway for each call."""
    tests = [f"({made.sql}) IS NULL" for made in calls]
    accepted = [
        (made, rendering)
        for made, (rendering, refusal) in zip(calls, table.renderings(tests), strict=True)
        if refusal is None
    ]
    answers = table.answers([made.sql for made, _ in accepted])
    comparisons = table.renderings([comparison(table, made) for made, _ in accepted])
    for (made, rendering), answer, (equality, _) in zip(
        accepted, answers, comparisons, strict=True
    ):
        assert rendering is not None
        found = list(differences(table, judge, made, rendering, equality, answer))
        key = made.signature.key
        refusals = [line for line in found if line.startswith("refused: ")]
        findings.refused[key].update(refusals)
        findings.differences += [
            f"{key}: {made.sql}\n  as {rendering}\n  {line}"
            for line in [line for line in found if line not in refusals][:1]
        ]
        if not refusals and any(value is not None for value in answer.values):
            findings.exercised[key] += 1


def comparison(table: Table, made: Call) -> str:
    """The filter that compares a call with the column for an answer of its type."""
    kind = table.types[made.result]
    collated = next(c.collation for c in table.columns if c.name == f"{kind.name} =") is not None
    collate = ' COLLATE pg_catalog."C"' if collated else ""
    return f'({made.sql}) IS NOT DISTINCT FROM ("{kind.name} ="{collate})'


def differences(
    table: Table,
    judge: Judge,
    made: Call,
    rendering: str,
    equality: str | None,
    answers: Answers,
) -> list[str]:
    """What the gateway says otherwise, and the refusals."""
    filter_ = judge.compile(rendering)
    if isinstance(filter_, str):
        # IS NULL of what fails for every row: told by the comparison, too.
        found = list(judge.truths(rendering, answers))
    else:
        found = list(judge.value(filter_, made.result, answers))
    if equality is not None:
        found += judge.equality(equality, f"{table.types[made.result].name} =", answers)
    return found


@pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)
def test_every_function_gives_the_servers_value(database: Database) -> None:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    factor = int(os.environ.get("PGSLUICE_ORACLE_CALLS") or 1)
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    random, findings = Random(seed), Findings()
    with database.connect() as connection:
        table = create_table(connection, random, sorted(PARSERS), ROWS)
        judge = Judge(table)
        by_key: dict[str, list[Signature]] = defaultdict(list)
        for signature in read_signatures(connection):
            by_key[signature.key].append(signature)
        major = connection.info.server_version // 10000
        unknown = implemented(major) - by_key.keys() if major == NEWEST else set()
        wanted = sorted(implemented(major) & by_key.keys())
        for turn in range(ROUNDS):
            left = wanted if turn == 0 else [k for k in wanted if not findings.exercised[k]]
            signatures = {key: by_key[key] for key in left}
            calls = random_calls(table, random, signatures, factor, easy=turn > 0)
            try_calls(table, judge, calls, findings)

    summary = Counter(line for found in findings.refused.values() for line in found.elements())
    print(f"{len(findings.exercised)} functions, refused: {summary.most_common(20)}")
    assert not unknown, f"no function of the server has these keys: {sorted(unknown)}"
    missing = {
        key: dict(findings.refused[key])
        for key in wanted
        if not findings.exercised[key] and key not in NOT_EXERCISED
    }
    assert not findings.differences, (
        f"seed {seed}, {len(findings.differences)} calls differ:\n"
        + "\n".join(findings.differences[:40])
    )
    assert not missing, f"seed {seed}, no call gave a value: {missing}"


def random_calls(
    table: Table,
    random: Random,
    signatures: dict[str, list[Signature]],
    factor: int,
    *,
    easy: bool,
) -> list[Call]:
    """Calls of every key, at least one of each of its signatures; `easy` to have a value."""
    argument = plain_argument(table, random, easy=easy)
    found = []
    for choices in signatures.values():
        for number in range(max(CALLS_PER_KEY, len(choices)) * factor):
            made = call(choices[number % len(choices)], table, random, argument, easy=easy)
            if made is not None and made.result in PARSERS:
                found.append(made)
    return found


@pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)
def test_every_type_modifier_gives_the_servers_value(database: Database) -> None:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    random, findings = Random(seed), Findings()
    names = [name for name, _ in builtins.lengths()]
    with database.connect() as connection:
        table = create_table(connection, random, sorted(PARSERS), ROWS)
        oids = {kind.name: kind.oid for kind in table.types.values()}
        calls = [
            Call(Signature(name, "cast", "", (), oids[name], 0, 0), sql, oids[name])
            for name in names
            for modifier in MODIFIERS[name]
            for sql in (f'"{name} 1"::{modifier}', f'"{name} 2"::{modifier}')
        ]
        try_calls(table, Judge(table), calls, findings)

    assert not findings.differences, f"seed {seed}:\n" + "\n".join(findings.differences[:40])
    assert sorted(findings.exercised) == sorted(names)
