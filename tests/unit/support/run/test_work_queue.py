"""Which files of tests share a Spark session."""

from __future__ import annotations

import pytest

from tests.support.run.work_queue import divided

SECONDS = {"a": 60.0, "b": 50.0, "c": 20.0, "d": 10.0}


@pytest.mark.parametrize(
    ("sessions", "units"),
    [(1, ["abcd"]), (2, ["ad", "bc"]), (3, ["a", "b", "cd"])],
)
def test_all_sessions_have_about_as_much_to_do(sessions: int, units: list[str]) -> None:
    expected = {file: f"spark {n}" for n, files in enumerate(units, 1) for file in files}

    assert divided(SECONDS, sessions) == expected
    assert divided(dict(reversed(SECONDS.items())), sessions) == expected
