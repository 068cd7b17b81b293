"""Targets of a row, and the look-up of those that may receive it.

Targets whose filters have sub-selects are looked up for the compiled path, if a row is *calm*: its
transaction has changed no set, and nothing about it is unsettled. A subscriber has such a row, and
is to have it, exactly where its filter is true by the sets as they are, so that it is routed as by
plain filters. Those that are true of the rows with certain values are found by a map from the text
of a column, which is filled as texts are asked for, and emptied whenever a set or an unsettled
slice has changed. All other rows are `gateway.routing.row.moving_route`'s, which is the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.core.errors import SchemaRefusedError
from gateway.definitions.model import FilterClause, Operation
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from gateway.routing.row.counters import TopicCounter

__all__ = [
    "Candidate",
    "Candidates",
    "Lookup",
    "LookupIndex",
    "MemberLookup",
    "MovingTargets",
    "NamesOf",
    "Passes",
    "Row",
    "Target",
]

_MOST_TEXTS: Final = 20_000
"""Number of texts that are remembered, whatever the number of all values."""

Row: TypeAlias = Sequence[ColumnValue]
Passes: TypeAlias = Callable[[Row], bool]


NamesOf: TypeAlias = Callable[[bytes | None], Sequence[str] | None]
"""Returns the subscriptions whose filters are true of a text, or may be; None if it is not calm."""


class Target:
    """Subscription as the receiver of one projection.

    Attributes:
        operations: Operations that it publishes.
        passes: Decision on a row, by operation; None lets every row pass.
        selections: Look-ups by the text of one column, by operation.
        filters: Clauses from which `passes` was compiled, by operation.
        skips_origins: Whether transactions with an origin are skipped (``origin = none``).
        refused: Error for which the table is held, because the registry refuses its schema, or
            None; `passes` raises it for a row that would pass.
        moves: Whether its filter has sub-selects: `gateway.routing.row.moving_route` decides.
    """

    __slots__ = (
        "counter",
        "filters",
        "key_prefix",
        "moves",
        "operations",
        "passes",
        "refused",
        "selections",
        "skips_origins",
        "topic",
        "value_prefix",
    )

    def __init__(
        self,
        counter: TopicCounter,
        *,
        key_prefix: bytes,
        value_prefix: bytes,
        operations: frozenset[Operation],
        passes: dict[Operation, Passes | None],
        selections: Mapping[Operation, Lookup],
        filters: Mapping[Operation, Sequence[FilterClause]],
        skips_origins: bool,
        refused: SchemaRefusedError | None = None,
        moves: bool = False,
    ) -> None:
        self.counter = counter
        self.topic = counter.topic
        self.key_prefix = key_prefix
        self.value_prefix = value_prefix
        self.operations = operations
        self.passes = passes
        self.selections = selections
        self.filters = filters
        self.skips_origins = skips_origins
        self.refused = refused
        self.moves = moves
        if refused is not None:
            self.passes = {o: _refusing(decide, refused) for o, decide in passes.items()}


def _refusing(passes: Passes | None, error: SchemaRefusedError) -> Passes:
    def refuse(row: Row) -> bool:
        if passes is None or passes(row):
            raise error
        return False

    return refuse


Candidate: TypeAlias = tuple[Target, Passes | None]
"""Target and its decision on the row; None lets every row pass."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Texts of the column at `index` with which a row can pass; None is NULL."""

    index: int
    texts: frozenset[bytes | None]


class Candidates:
    """Targets that may receive a row, by look-up where their filters allow it.

    The cost of a row therefore does not grow with the number of subscriptions with filters like
    ``region = 'EU'``.

    Attributes:
        everyone: All targets that publish the operation.
        others: Targets that are candidates for every row.
        indexed: All others, by index of a column and by its text; None is NULL.
    """

    __slots__ = ("everyone", "indexed", "others")

    def __init__(self, targets: Sequence[Target], operation: Operation) -> None:
        self.everyone: list[Candidate] = []
        self.others: list[Candidate] = []
        indexed: dict[int, dict[bytes | None, list[Candidate]]] = {}
        for target in targets:
            if operation not in target.operations or target.moves:
                continue
            candidate = (target, target.passes[operation])
            self.everyone.append(candidate)
            lookup = target.selections.get(operation)
            if lookup is None:
                self.others.append(candidate)
                continue
            entries = indexed.setdefault(lookup.index, {})
            for text in lookup.texts:
                entries.setdefault(text, []).append(candidate)
        self.indexed = list(indexed.items())

    def of(self, row: Row) -> list[Candidate]:
        """Return the candidates for `row`; the list must not be changed."""
        found = self.others
        for index, entries in self.indexed:
            value = row[index]
            if value is UNCHANGED:
                return self.everyone
            hits = entries.get(value)
            if hits is not None:
                found = found + hits if found else hits
        return found

    def of_both(self, old: Row | None, new: Row) -> list[Candidate]:
        """Return the candidates for an UPDATE: those for `old` and those for `new`."""
        found = self.of(new)
        if old is None or not self.indexed:
            return found
        before = self.of(old)
        if before is found or before == found:
            return found
        seen = {id(target) for target, _ in found}
        return found + [candidate for candidate in before if id(candidate[0]) not in seen]


class MemberLookup(dict[bytes | None, tuple[int, ...] | None]):
    """Numbers of the targets of a row by the text of one column; None for rows that are not calm.

    Args:
        names_of: Function that finds the subscriptions of a text.
        numbers: Number of each subscription that is found here; all others are found elsewhere.
    """

    def __init__(self, names_of: NamesOf, numbers: Mapping[str, int]) -> None:
        super().__init__()
        self._names_of = names_of
        self._numbers = numbers

    def __missing__(self, text: bytes | None) -> tuple[int, ...] | None:
        if len(self) >= _MOST_TEXTS:
            self.clear()
        names = self._names_of(text)
        if names is None:
            found = None
        else:
            found = tuple([self._numbers[name] for name in names if name in self._numbers])
        self[text] = found
        return found


class LookupIndex:
    """Look-up of the targets of one projection by one column.

    Attributes:
        column: Index of the column in a tuple.
        lookup: Numbers of `subscriptions` by text.
        subscriptions: Subscriptions with what else decides about a row that was found; None for
            nothing.
    """

    def __init__(
        self, column: int, names_of: NamesOf, subscriptions: Sequence[tuple[str, Passes | None]]
    ) -> None:
        self.column = column
        self.subscriptions = subscriptions
        numbers = {name: number for number, (name, _) in enumerate(subscriptions)}
        self.lookup = MemberLookup(names_of, numbers)


class MovingTargets:
    """Targets of one projection whose filters have sub-selects, for calm rows.

    Attributes:
        others: Subscriptions that are asked about every row, with their decisions.
        indexes: Look-ups for all others.
        columns: Names of the columns that decisions in Python read.
    """

    def __init__(
        self,
        others: Sequence[tuple[str, Passes]],
        indexes: Sequence[LookupIndex],
        columns: frozenset[str],
    ) -> None:
        self.others = others
        self.indexes = indexes
        self.columns = columns
