"""Which strategies a batch is tried with, by what it brings and by the table's size."""

from __future__ import annotations

import pytest

from spark_consumer.apply.frames.strategies import REWRITE_BYTES, choose

UNKNOWN = None
LITTLE, MUCH = REWRITE_BYTES, REWRITE_BYTES + 1


@pytest.mark.parametrize(
    ("batch", "size", "expected"),
    [
        ("small changes", LITTLE, "rewrite"),
        ("small changes", MUCH, "merge"),
        ("small changes", UNKNOWN, "merge"),
        ("small changes by row", LITTLE, "merge"),
        ("small inserts by row", LITTLE, "append_as_it_is, append, merge"),
        ("large changes", LITTLE, "merge"),
        ("large changes", MUCH, "merge"),
        ("small inserts", LITTLE, "append_as_it_is, rewrite"),
        ("small inserts", MUCH, "append_as_it_is, append, merge"),
        ("large inserts", LITTLE, "append_as_it_is, append, merge"),
        ("large inserts", MUCH, "append_as_it_is, append, merge"),
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
