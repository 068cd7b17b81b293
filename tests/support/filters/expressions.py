"""Random filters: nested expressions of every form over what a server offers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from random import Random
from typing import Final

from tests.support.filters.calls import call, literal
from tests.support.filters.hints import MODIFIERS, PATTERNS, REGEXES, SIMILAR
from tests.support.filters.literals import quote, values_of
from tests.support.filters.server import Table
from tests.support.filters.signatures import Signature

__all__ = ["Expressions"]

_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
_NUMBERS: Final = ("int2", "int4", "int8", "float4", "float8", "numeric")
_TEXTS: Final = ("text", "varchar", "bpchar", "name")
_UNORDERED: Final = ("json", "jsonpath", "xid", "cid", "point", "tsvector", "tsquery", "money")


class Expressions:
    """Makes filters over one table; the same random numbers make the same filters."""

    def __init__(
        self,
        table: Table,
        random: Random,
        signatures: Sequence[Signature],
        keys: Set[str],
        readable: Set[int],
    ) -> None:
        """Call only functions with a key in `keys`, on types in `readable`."""
        self._table, self._random = table, random
        self._oids = {kind.name: kind.oid for kind in table.types.values()}
        self._columns: dict[int, list[str]] = defaultdict(list)
        for slot in table.slots:
            self._columns[slot.type_oid].append(f'"{slot.name}"')
        self._kinds = [oid for oid in self._columns if table.types[oid].name not in _UNORDERED]
        self._calls: dict[int, dict[str, list[Signature]]] = defaultdict(lambda: defaultdict(list))
        for signature in signatures:
            pseudo = table.types[signature.result].kind == "p"
            if signature.key not in keys or not (pseudo or signature.result in readable):
                continue
            result = 0 if pseudo else signature.result
            self._calls[result][signature.name or signature.key].append(signature)

    def filter(self) -> str:
        """A boolean expression."""
        return self.boolean(self._random.choice((0, 1, 1, 2, 2, 3)))

    def boolean(self, depth: int) -> str:
        """A boolean expression of at most `depth` levels of AND, OR and NOT."""
        random = self._random
        chosen = random.random()
        if depth > 0 and chosen < 0.45:
            word = random.choice(("AND", "OR"))
            parts = [self.boolean(depth - 1) for _ in range(random.choice((2, 2, 3)))]
            return "(" + f" {word} ".join(parts) + ")"
        if depth > 0 and chosen < 0.58:
            return f"(NOT {self.boolean(depth - 1)})"
        if depth > 0 and chosen < 0.66:
            test = random.choice(("TRUE", "FALSE", "UNKNOWN", "NULL"))
            return f"({self.boolean(depth - 1)} {random.choice(('IS', 'IS NOT'))} {test})"
        return self.predicate()

    def predicate(self) -> str:
        """A comparison, or one of its kin."""
        makers: tuple[Callable[[], str], ...] = (
            self.compared, self.compared, self.called, self.called, self.called, self.called,
            self.listed, self.quantified, self.between, self.matched, self.rows, self.tested,
            self.mixed,
        )  # fmt: skip
        return self._random.choice(makers)()

    # Predicates

    def compared(self) -> str:
        """Two expressions of one type."""
        kind = self._kind()
        left, right = self.expression(kind, self._depth()), self.expression(kind, self._depth())
        words = (*_COMPARISONS, "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
        return f"({left} {self._random.choice(words)} {right})"

    def mixed(self) -> str:
        """Numbers, or texts, of two types."""
        kinds = self._random.choice((_NUMBERS, _NUMBERS, _TEXTS))
        left, right = (
            self.expression(self._oids[self._random.choice(kinds)], self._depth()) for _ in "12"
        )
        return f"({left} {self._random.choice(_COMPARISONS)} {right})"

    def called(self) -> str:
        """Any function that returns a boolean."""
        return self.call(self._oids["bool"], self._depth()) or self.compared()

    def listed(self) -> str:
        """IN."""
        kind = self._kind()
        items = [literal(kind, self._table.types, self._random) for _ in range(self._size(6) + 1)]
        if self._random.random() < 0.2:
            items.append(self.leaf(kind))
        word = self._random.choice(("IN", "NOT IN"))
        return f"({self.expression(kind, self._depth())} {word} ({', '.join(items)}))"

    def quantified(self) -> str:
        """ANY or ALL of an array column, an array literal or ARRAY[...]."""
        kind = self._random.choice([k for k in self._kinds if self._table.types[k].array])
        array = self._table.types[kind].array
        if self._random.random() < 0.4:
            right = f"ARRAY[{', '.join(self.leaf(kind) for _ in range(self._size(3) + 1))}]"
        else:
            right = self.expression(array, 1) if array in self._columns else self._array(kind)
        word = self._random.choice(("ANY", "ALL"))
        left = self.expression(kind, self._depth())
        return f"({left} {self._random.choice(_COMPARISONS)} {word} ({right}))"

    def between(self) -> str:
        """BETWEEN, all four of it."""
        kind = self._kind()
        low, high = self.leaf(kind), self.leaf(kind)
        word = self._random.choice(("BETWEEN", "NOT BETWEEN", "BETWEEN SYMMETRIC"))
        return f"({self.expression(kind, self._depth())} {word} {low} AND {high})"

    def matched(self) -> str:
        """LIKE, ILIKE, SIMILAR TO and regular expressions, also with ANY and ALL."""
        random = self._random
        left = self.expression(self._oids[random.choice(_TEXTS)], random.choice((0, 0, 1)))
        chosen = random.random()
        escape = random.choice(("", "", "", " ESCAPE '!'", " ESCAPE ''", " ESCAPE '#'"))
        if chosen < 0.35:
            word = random.choice(("LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"))
            return f"({left} {word} {self._pattern(PATTERNS)}{escape})"
        if chosen < 0.5:
            word = random.choice(("SIMILAR TO", "NOT SIMILAR TO"))
            return f"({left} {word} {self._pattern(SIMILAR)}{escape})"
        if chosen < 0.85:
            word = random.choice(("~", "!~", "~*", "!~*"))
            return f"({left} {word} {self._pattern(REGEXES)})"
        word = random.choice(("LIKE", "~", "!~~", "ILIKE"))
        items = ", ".join(quote(random.choice(PATTERNS)) for _ in "12")
        return f"({left} {word} {random.choice(('ANY', 'ALL'))} (ARRAY[{items}]))"

    def rows(self) -> str:
        """Row comparison, IS [NOT] NULL of a row, OVERLAPS."""
        random = self._random
        kinds = [self._kind() for _ in range(random.choice((2, 2, 3)))]
        left, right = (", ".join(self.leaf(kind) for kind in kinds) for _ in "12")
        chosen = random.random()
        if chosen < 0.2:
            return f"(ROW({left}) IS {random.choice(('NULL', 'NOT NULL'))})"
        if chosen < 0.3:
            return f"(({left}) IN (({right}), ({left})))"
        words = (*_COMPARISONS, "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
        return f"(({left}) {random.choice(words)} ({right}))"

    def tested(self) -> str:
        """IS [NOT] NULL, or a boolean by itself."""
        if self._random.random() < 0.5:
            return self.expression(self._oids["bool"], 2)
        kind = self._random.choice(list(self._columns))
        word = self._random.choice(("IS NULL", "IS NOT NULL", "IS NOT DISTINCT FROM NULL"))
        if "DISTINCT" in word and kind not in self._kinds:
            word = "IS NULL"
        return f"({self.expression(kind, self._depth())} {word})"

    # Expressions of a type

    def expression(self, kind: int, depth: int) -> str:
        """An expression of type `kind` with at most `depth` levels below it."""
        random = self._random
        if depth <= 0:
            return self.leaf(kind)
        if random.random() < 0.6:
            made = self.call(kind, depth)
            if made is not None:
                return made
        makers: tuple[Callable[[int, int], str], ...] = (
            self.case, self.simple_case, self.coalesce, self.null_if, self.extreme, self.modified,
            self.array,
        )  # fmt: skip
        return random.choice(makers)(kind, depth)

    def leaf(self, kind: int) -> str:
        """A column or a literal."""
        if kind in self._columns and self._random.random() < 0.65:
            return self._random.choice(self._columns[kind])
        return literal(kind, self._table.types, self._random)

    def call(self, kind: int, depth: int) -> str | None:
        """A call that results in `kind`, or None when no function does."""
        random = self._random
        for _ in range(4):
            # Polymorphic functions may result in anything.
            choices = self._calls[0] if random.random() < 0.2 else self._calls[kind]
            if not choices:
                continue
            name = random.choice(list(choices))
            signature = random.choice(choices[name])
            made = call(
                signature,
                self._table,
                random,
                lambda oid: self.expression(oid, depth - random.choice((1, 1, 2))),
                kind,
            )
            if made is not None:
                return made.sql
        return None

    def case(self, kind: int, depth: int) -> str:
        """CASE WHEN."""
        arms = "".join(
            f" WHEN {self.boolean(0)} THEN {self.expression(kind, depth - 1)}"
            for _ in range(self._random.choice((1, 1, 2)))
        )
        return f"(CASE{arms}{self._otherwise(kind, depth)} END)"

    def simple_case(self, kind: int, depth: int) -> str:
        """CASE ... WHEN."""
        of = self._kind()
        arms = "".join(
            f" WHEN {self.leaf(of)} THEN {self.expression(kind, depth - 1)}"
            for _ in range(self._random.choice((1, 1, 2)))
        )
        return f"(CASE {self.expression(of, 0)}{arms}{self._otherwise(kind, depth)} END)"

    def coalesce(self, kind: int, depth: int) -> str:
        """COALESCE."""
        items = [self.expression(kind, depth - 1) for _ in range(self._random.choice((2, 2, 3)))]
        return f"COALESCE({', '.join(items)})"

    def null_if(self, kind: int, depth: int) -> str:
        """NULLIF."""
        if kind not in self._kinds:
            return self.leaf(kind)
        return f"NULLIF({self.expression(kind, depth - 1)}, {self.leaf(kind)})"

    def extreme(self, kind: int, depth: int) -> str:
        """GREATEST and LEAST."""
        if kind not in self._kinds:
            return self.leaf(kind)
        items = [self.expression(kind, depth - 1) for _ in range(self._random.choice((2, 2, 3)))]
        return f"{self._random.choice(('GREATEST', 'LEAST'))}({', '.join(items)})"

    def modified(self, kind: int, depth: int) -> str:
        """A cast to the type itself with a modifier."""
        modifiers = MODIFIERS.get(self._table.types[kind].name)
        inner = self.expression(kind, depth - 1)
        return f"({inner})::{self._random.choice(modifiers)}" if modifiers else inner

    def array(self, kind: int, depth: int) -> str:
        """ARRAY[...]."""
        element = self._table.types[kind].element
        if not element or element not in self._columns:
            return self.leaf(kind)
        items = [self.expression(element, depth - 1) for _ in range(self._size(3) + 1)]
        return f"ARRAY[{', '.join(items)}]"

    def _otherwise(self, kind: int, depth: int) -> str:
        if self._random.random() < 0.3:
            return ""
        return f" ELSE {self.expression(kind, depth - 1)}"

    def _pattern(self, pool: Sequence[str]) -> str:
        if self._random.random() < 0.12:
            return self.leaf(self._oids["text"])
        return quote(self._random.choice(pool))

    def _array(self, kind: int) -> str:
        """A literal of an array of `kind`."""
        element, array = self._table.types[kind], self._table.types[self._table.types[kind].array]
        pool = values_of(array.name, element.name)
        return f"{quote(self._random.choice(pool))}::{array.sql}"

    def _kind(self) -> int:
        return self._random.choice(self._kinds)

    def _depth(self) -> int:
        return self._random.choice((0, 0, 1, 1, 2))

    def _size(self, limit: int) -> int:
        return self._random.randint(0, limit)
