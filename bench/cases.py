"""What is streamed, and for whom: the cases of `bench.stream`, with counts known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.load import SELECTED, Expected, Load, Shape

__all__ = ["CASES", "Case"]

MANY: Final = 100


@dataclass(frozen=True, slots=True)
class Case:
    """A gateway to measure.

    Attributes:
        title: For the table of results.
        shape: Of the load. Cases of one load are measured beside each other.
        filters: By the end of a subscription's name, its WHERE clause, and the same for an id.
        share: Of the changes that are asked for, how many are made: a part of them, or several
            times as many.
        most_repeats: For what takes long; None: as often as is asked for.
        warm: The early transactions are taken by a run of their own, which is not measured: the
            broker needs some seconds of its CPU for the first use of each hundred topics.
    """

    name: str
    title: str
    shape: Shape
    filters: tuple[tuple[str, str, Callable[[int], bool]], ...]
    share: float = 1.0
    most_repeats: int | None = None
    warm: bool = False

    def load(self, changes: int) -> Load:
        """Return the load for so many changes."""
        return Load(int(changes * self.share), self.shape)

    def changes(self, load: Load) -> int:
        """Return how many of the load's changes are measured."""
        return load.late_changes if self.warm else load.changes

    def subscriptions(self, name: str) -> str:
        """Return the definitions of a gateway of this name."""
        return "".join(
            f"CREATE PUBLICATION p{end} FOR TABLE orders WHERE ({where});\n"
            f"CREATE SUBSCRIPTION {name}{end} CONNECTION '' PUBLICATION p{end}"
            " WITH (copy_data = false);\n"
            for end, where, _ in self.filters
        )

    def expected(self, name: str, load: Load) -> dict[str, Expected]:
        """Return, by topic, what must be in Kafka."""
        return {
            f"{name}{end}.public.orders": load.expected(takes) for end, _, takes in self.filters
        }


def _every(number: int) -> Callable[[int], bool]:
    return lambda i: i % number == 0


def _all(i: int) -> bool:
    return i > 0


_MIXED: Final = Shape()
_REGIONS: Final = Shape(regions=MANY)
_TENANTS: Final = Shape(inserts=100, updates=0, deletes=0, regions=MANY, region_rows=100)
_ALL: Final = (("", "id > 0", _all),)


def _by_region(shape: Shape) -> tuple[tuple[str, str, Callable[[int], bool]], ...]:
    return tuple((f"_{n}", f"name = 'region {n}'", shape.region(n)) for n in range(MANY))


CASES: Final = (
    Case("all", "every row passes", _MIXED, _ALL),
    Case("tenth", "1 row in 10 passes", _MIXED, (("", "id % 10 = 0", _every(10)),)),
    Case(
        "one",
        f"1 row in {SELECTED} passes",
        _MIXED,
        (("", f"id % {SELECTED} = 0", _every(SELECTED)),),
    ),
    Case(
        "indexed",
        f"{MANY} filters, one takes each row",
        _REGIONS,
        _by_region(_REGIONS),
        share=5,
        most_repeats=1,
        warm=True,
    ),
    Case(
        "tenants",
        f"{MANY} filters, one takes each transaction",
        _TENANTS,
        _by_region(_TENANTS),
        share=5,
        most_repeats=1,
        warm=True,
    ),
    Case("wide", "50 columns", Shape(columns=50), _ALL, share=0.5, most_repeats=2),
    Case(
        "updates",
        "updates and deletes",
        Shape(inserts=0, updates=88, deletes=12),
        _ALL,
        most_repeats=2,
    ),
    Case("single", "transactions of 1 row", Shape(inserts=1, updates=0, deletes=0), _ALL, 1, 2),
    Case("ten", "transactions of 10 rows", Shape(inserts=10, updates=0, deletes=0), _ALL, 0.5, 2),
    Case(
        "large",
        "one transaction of all rows",
        Shape(inserts=0, updates=0, deletes=0, at_once=True),
        _ALL,
        share=10,
        most_repeats=1,
    ),
    Case(
        "fanout",
        f"{MANY} subscriptions take each row",
        Shape(inserts=1000, updates=0, deletes=0),
        tuple((f"_{n}", "id > 0", _all) for n in range(MANY)),
        share=0.05,
        most_repeats=1,
    ),
)
