"""Which strategies a batch is tried with, by what it brings."""

from __future__ import annotations

import pytest

from spark_consumer.apply.frames.strategies import choose


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ("changes", "merge"),
        ("inserts", "append_as_it_is, append, merge"),
        ("changes after TRUNCATE", "overwrite"),
        ("inserts after TRUNCATE", "append_as_it_is, overwrite"),
    ],
)
def test_strategies_follow_from_the_batch(batch: str, expected: str) -> None:
    chosen = choose(only_inserts="inserts" in batch, empty=batch.endswith("TRUNCATE"))

    assert ", ".join(strategy.__name__ for strategy in chosen) == expected
