"""A reader that is asked for what it cannot do says so before it connects."""

from __future__ import annotations

import pytest

from pgsluice_client import Position, Reader, ReadError


def test_one_name_is_not_taken_for_a_collection_of_names() -> None:
    with pytest.raises(ReadError, match="collection of names"):
        Reader("s1", {}, {"url": "http://localhost"}, topics="s1.public.t1")


def test_a_position_of_another_subscription_is_refused() -> None:
    with pytest.raises(ReadError, match="subscription s1"):
        Reader("s2", {}, {"url": "http://localhost"}, start=Position("s1"))
