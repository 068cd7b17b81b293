"""The place for the data of a run's servers."""

from __future__ import annotations

import pytest

from tests.support.run.environment import has_room


@pytest.mark.parametrize(
    ("free_mb", "memory_mb", "expected"),
    [
        pytest.param(12_000, 20_000, True, id="half of a machine's memory"),
        pytest.param(64, 20_000, False, id="a container's default"),
        pytest.param(12_000, 4_000, False, id="a container with little memory"),
    ],
)
def test_clusters_are_in_memory_if_both_the_folder_and_the_machine_have_room(
    free_mb: int, memory_mb: int, expected: bool
) -> None:
    assert has_room(free_mb, memory_mb) is expected
