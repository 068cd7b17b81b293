"""Which strategies a batch is tried with, by what it brings and by the table's size."""

from __future__ import annotations

import pytest

from spark_consumer.apply.strategies import REWRITE_BYTES, VECTOR_BYTES, choose

UNKNOWN = None
LITTLE, MIDDLING, MUCH = REWRITE_BYTES, REWRITE_BYTES + 1, VECTOR_BYTES + 1


@pytest.mark.parametrize(
    ("batch", "size", "expected"),
    [
        ("small changes", LITTLE, "rewrite"),
        ("small changes", MIDDLING, "mark, merge"),
        ("small changes", MUCH, "mark, merge"),
        ("small changes", UNKNOWN, "mark, merge"),
        ("small changes by row", LITTLE, "mark, merge"),
        ("small inserts by row", LITTLE, "append_as_it_is, append, mark, merge"),
        ("large changes", LITTLE, "mark, merge"),
        ("large changes", MUCH, "mark, merge"),
        ("small inserts", LITTLE, "append_as_it_is, rewrite"),
        ("small inserts", MIDDLING, "append_as_it_is, append, mark, merge"),
        ("large inserts", LITTLE, "append_as_it_is, append, mark, merge"),
        ("large inserts", MUCH, "append_as_it_is, append, mark, merge"),
        ("small changes after TRUNCATE", UNKNOWN, "overwrite"),
        ("large changes after TRUNCATE", MUCH, "overwrite"),
        ("small inserts after TRUNCATE", LITTLE, "append_as_it_is, overwrite"),
        ("large inserts after TRUNCATE", UNKNOWN, "append_as_it_is, overwrite"),
    ],
)
def test_strategies_follow_from_batch_and_table(
    batch: str, size: int | None, expected: str
) -> None:
    chosen = choose(
        only_inserts="inserts" in batch,
        small=batch.startswith("small"),
        empty=batch.endswith("TRUNCATE"),
        size=size,
        by_row="by row" in batch,
    )

    assert ", ".join(strategy.__name__ for strategy in chosen) == expected
